import re

import pytest

from ordinate.report.read import read
from ordinate.report.summary import summarise
from ordinate.report.verdict import holds, leader, verdict

SCHEMES = ("none", "sinusoidal", "rope", "alibi")


def said(folder):
    study = read(folder)
    return " ".join(verdict(study, summarise(study)))


def test_a_winner_is_named_where_every_other_is_surely_behind(write, result):
    # documents differ much more than schemes do: intervals overlap, and the paired differences are clear
    folder = write([result(label, 0, spread=0.6) for label in SCHEMES])
    text = said(folder)
    assert "“rope” leads" in text
    assert "surely ahead of every other on the same documents, also after correction for all comparisons" in text
    assert "next is “alibi”, behind by 0.1" in text
    assert leader(summarise(read(folder))).label == "rope"


def test_no_winner_is_named_inside_the_luck_of_training(write, result):
    levels = {("rope", 0): 2.3, ("rope", 1): 2.7, ("alibi", 0): 2.62, ("alibi", 1): 2.5}
    three = {("none", 0): 3.2, ("none", 1): 3.21}
    runs = [result(label, seed, level=level) for (label, seed), level in (levels | three).items()]
    folder = write(runs, schemes=("rope", "alibi", "none"), seeds=2)
    text = said(folder)
    assert "no winner can be named" in text
    assert "on the same documents and seeds it cannot be told from" in text
    assert leader(summarise(read(folder))) is None


def test_what_more_seeds_would_decide_is_said(write, result):
    runs = [
        result(label, seed, level=level + luck)
        for label, level in (("rope", 2.4), ("alibi", 2.6))
        for seed, luck in enumerate((-0.1, 0.0, 0.1) if label == "rope" else (0.1, 0.0, -0.1))
    ]
    text = said(write(runs, schemes=("rope", "alibi"), seeds=3))
    assert "Were the differences what they seem, 7 seeds would decide about “alibi”." in text
    assert "Each was trained 3 times: the intervals" in text


def test_of_several_that_seeds_can_decide_the_last_is_said_too(write, result):
    runs = [
        result(label, seed, level=level + luck)
        for label, level in (("rope", 2.4), ("alibi", 2.6), ("none", 2.53))
        for seed, luck in enumerate((-0.1, 0.0, 0.1) if label == "rope" else (0.1, 0.0, -0.1))
    ]
    text = said(write(runs, schemes=("rope", "alibi", "none"), seeds=3))
    found = re.search(r"they seem, (\d+) seeds would decide about “alibi”, and (\d+) about both\.", text)
    assert found, text
    assert int(found[1]) < int(found[2])


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
    text = said(write(three, schemes=("rope", "alibi"), seeds=3))
    assert "Each was trained 3 times" in text
    assert "“rope” wins" in text


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


def test_who_serves_the_trained_length_only_is_not_said_to_hold(write, result):
    short = result("learned", 0, level=2.4)
    for row in short["lengths"][1:]:
        row["nats_per_token"] = None
    folder = write([short, result("rope", 0), result("alibi", 0)], schemes=("learned", "rope", "alibi"))
    study = read(folder)
    text = " ".join(verdict(study, summarise(study)))
    assert "“learned” cannot be read at 8 times that length." in text
    assert "“alibi” holds" in text
    assert "“alibi” if the model must read further" in text
