import pytest

from ordinate.report.quantity import Bits
from ordinate.report.read import read
from ordinate.report.summary import summarise
from ordinate.report.verdict import holds, verdict, winner

SCHEMES = ("none", "sinusoidal", "rope", "alibi")


def said(folder):
    study = read(folder)
    return " ".join(verdict(study, summarise(study)))


def test_a_winner_is_named_only_when_its_interval_is_clear_of_every_other(write, result):
    clear = write([result(label, 0, spread=0.02) for label in SCHEMES])
    assert "“rope” wins" in said(clear)
    assert winner(summarise(read(clear)), Bits()).label == "rope"


def test_no_winner_is_named_when_the_intervals_overlap(write, result):
    folder = write([result(label, 0, spread=0.6) for label in SCHEMES])
    text = said(folder)
    assert "no winner can be named" in text
    assert "“rope” wins" not in text
    assert "overlaps with “alibi”" in text


def test_overlapping_schemes_are_still_compared_on_the_same_documents(write, result):
    text = said(write([result(label, 0, spread=0.6) for label in SCHEMES]))
    assert "Compared on the same documents, it is ahead of “alibi” by 0.1" in text


def test_schemes_that_are_alike_are_said_to_be_alike(write, result):
    alike = [result(label, 0, level=2.5) for label in ("rope", "alibi")]
    text = said(write(alike, schemes=("rope", "alibi")))
    assert "no winner can be named" in text
    assert "cannot be told from" in text


def test_what_holds_beyond_the_trained_length_is_told_from_what_breaks(write, result):
    folder = write([result(label, 0) for label in SCHEMES])
    entries = {entry.label: entry for entry in summarise(read(folder))}
    assert [label for label, entry in entries.items() if holds(entry)] == ["alibi"]
    assert "“alibi” holds" in said(folder)
    assert "“rope” by 1.50" in said(folder)
    assert "“alibi” if the model must read further" in said(folder)


def test_one_seed_is_said_to_say_nothing_of_the_luck_of_training(write, result):
    assert "not the luck of training" in said(write([result("rope", 0), result("alibi", 0)]))
    three = [result(label, seed) for label in ("rope", "alibi") for seed in range(3)]
    assert "up to 3 times" in said(write(three, schemes=("rope", "alibi"), seeds=3))


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_runs_that_did_not_finish_are_named(write, status, result):
    bad = {key: result("rope", 0)[key] for key in ("format", "run")} | {"status": status, "step": 7, "message": "x"}
    text = said(write([bad, result("none", 0)]))
    assert f"1 run {status}" in text
    assert "“rope” seed 0" in text
    assert "2 planned runs have no result yet: sinusoidal seed 0 and alibi seed 0" in text


def test_nothing_finished_is_said_plainly(write):
    assert "No run has finished" in said(write([]))


def test_one_scheme_alone_is_not_compared(write, result):
    assert "A comparison needs two schemes" in said(write([result("rope", 0)], schemes=("rope",)))


def test_one_document_has_no_interval(write, result):
    text = said(write([result(label, 0, documents=1) for label in ("rope", "alibi")], schemes=("rope", "alibi")))
    assert "interval unknown" in text
    assert "wins" not in text


def test_a_damaged_result_is_reported_not_raised(write, result):
    assert "Left out: broken: the result cannot be read" in said(write([result("rope", 0), "{"]))
    assert "NaN is not a number" in said(write([result("rope", 0), '{"format": NaN}']))
