import re

import pytest

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.report.decision import leader, winner
from ordinate.report.read import load_study
from ordinate.report.summary import summarise
from ordinate.report.verdict import extrapolates, verdict

SCHEMES = ("none", "sinusoidal", "rope", "alibi")


def said(folder):
    study = load_study(folder)
    return " ".join(verdict(study, summarise(study)))


def test_a_winner_is_named_if_every_other_is_significantly_worse(write, result):
    # documents differ much more than schemes do: intervals overlap, and the paired differences are clear
    folder = write([result(label, 0, spread=0.6) for label in SCHEMES])
    text = said(folder)
    assert "“rope” leads" in text
    assert (
        "significantly better than every other scheme on the same documents, after correction for all comparisons"
        in text
    )
    assert "the runner-up is “alibi”, worse by 0.1" in text
    entries = summarise(load_study(folder))
    assert leader(entries).label == "rope"
    # one seed says nothing about another training run
    assert winner(entries) is None
    assert "Provisionally (one seed), use “rope” if texts stay within the trained length" in text


def test_no_winner_is_named_within_the_variance_between_seeds(write, result):
    levels = {("rope", 0): 2.3, ("rope", 1): 2.7, ("alibi", 0): 2.62, ("alibi", 1): 2.5}
    three = {("none", 0): 3.2, ("none", 1): 3.21}
    runs = [result(label, seed, level=level) for (label, seed), level in (levels | three).items()]
    folder = write(runs, schemes=("rope", "alibi", "none"), seeds=2)
    text = said(folder)
    assert "no winner can be named" in text
    assert "on the same documents and seeds it is not significantly better than" in text
    assert winner(summarise(load_study(folder))) is None


def test_the_number_of_seeds_needed_is_stated(write, result):
    runs = [
        result(label, seed, level=level + luck)
        for label, level in (("rope", 2.4), ("alibi", 2.6))
        for seed, luck in enumerate((-0.1, 0.0, 0.1) if label == "rope" else (0.1, 0.0, -0.1))
    ]
    text = said(write(runs, schemes=("rope", "alibi"), seeds=3))
    assert "If the true differences equal the observed ones, about 7 seeds are needed for “alibi”." in text
    assert "Each was trained with 3 seeds: the intervals" in text


def test_the_seeds_needed_for_all_open_differences_are_stated_too(write, result):
    runs = [
        result(label, seed, level=level + luck)
        for label, level in (("rope", 2.4), ("alibi", 2.6), ("none", 2.53))
        for seed, luck in enumerate((-0.1, 0.0, 0.1) if label == "rope" else (0.1, 0.0, -0.1))
    ]
    text = said(write(runs, schemes=("rope", "alibi", "none"), seeds=3))
    found = re.search(r"observed ones, about (\d+) seeds are needed for “alibi”, and about (\d+) for both\.", text)
    assert found, text
    assert int(found[1]) < int(found[2])


def test_equal_schemes_do_not_differ_significantly(write, result):
    alike = [result(label, 0, level=2.5) for label in ("rope", "alibi")]
    text = said(write(alike, schemes=("rope", "alibi")))
    assert "no winner can be named" in text
    assert "is not significantly better than" in text


def test_schemes_that_extrapolate_are_separated_from_those_that_do_not(write, result):
    folder = write([result(label, 0) for label in SCHEMES])
    entries = {entry.label: entry for entry in summarise(load_study(folder))}
    assert [label for label, entry in entries.items() if extrapolates(entry)] == ["alibi"]
    assert "“alibi” is not significantly worse than at the trained length" in said(folder)
    assert "“rope” by 1.50" in said(folder)
    assert "“alibi” if the model must read longer inputs" in said(folder)


def test_one_seed_does_not_cover_the_variance_between_training_runs(write, result):
    assert "not about the variance between training runs" in said(write([result("rope", 0), result("alibi", 0)]))
    three = [result(label, seed) for label in ("rope", "alibi") for seed in range(3)]
    text = said(write(three, schemes=("rope", "alibi"), seeds=3))
    assert "Each was trained with 3 seeds" in text
    assert "“rope” wins" in text


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_runs_that_did_not_finish_are_named(write, status, result):
    bad = {key: result("rope", 0)[key] for key in ("format", "run")} | {"status": status, "step": 7, "message": "x"}
    text = said(write([bad, result("none", 0)]))
    assert f"1 run {status}" in text
    assert "“rope” seed 0" in text
    assert "2 planned runs have no result yet: sinusoidal seed 0 and alibi seed 0" in text


def test_a_study_without_finished_runs_has_no_results(write):
    assert "No run has finished" in said(write([]))


def test_one_scheme_alone_is_not_compared(write, result):
    text = said(write([result("rope", 0)], schemes=("rope",)))
    assert "A comparison needs two schemes" in text
    assert "Only “rope” was trained, so there is nothing to choose from." in text


def test_one_document_has_no_interval(write, result):
    text = said(write([result(label, 0, documents=1) for label in ("rope", "alibi")], schemes=("rope", "alibi")))
    assert "interval unknown" in text
    assert "no winner can be named: evaluate on more of them" in text
    assert not re.search("wins|leads|nan", text)


def flip_a_bit(path, other):
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 1
    path.write_bytes(text)


def truncate(path, other):
    path.write_bytes(path.read_bytes()[:-100])


def remove_the_seal(path, other):
    path.write_text("{" + path.read_text().partition(",")[2])


def swap(path, other):
    kept = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(kept)


@pytest.mark.parametrize(
    ("harm", "said_of_it", "harmed"),
    [
        (flip_a_bit, "a file must match its checksum", ["rope-s0"]),
        (truncate, "a file must match its checksum", ["rope-s0"]),
        (remove_the_seal, "a file must start with the checksum of its content", ["rope-s0"]),
        (swap, "a result must be in the folder of its run", ["alibi-s0", "rope-s0"]),
    ],
)
def test_a_damaged_result_is_refused_by_name_and_the_others_reported(write, result, harm, said_of_it, harmed):
    folder = write([result(label, 0) for label in ("rope", "alibi", "none", "sinusoidal")])
    harm(*(folder / "runs" / name / "result.json" for name in ("rope-s0", "alibi-s0")))
    study = load_study(folder)
    kept = [name for name in ("none-s0", "sinusoidal-s0", "rope-s0", "alibi-s0") if name not in harmed]
    assert [item["run"]["name"] for item in study.results] == kept
    assert len(study.damaged) == len(harmed)
    assert study.pending == []
    for name, line in zip(harmed, study.damaged, strict=True):
        assert line.startswith(f"{name}: the result cannot be used: {said_of_it}; {folder / 'runs' / name}")
        assert line.endswith("; repeat the command of the study, which trains this run again")
        assert f"Left out: {line}." in " ".join(verdict(study, summarise(study)))


def test_a_result_that_lacks_a_part_is_reported_not_raised(write, result):
    assert "Left out: broken: the result cannot be used: a file must start with" in said(
        write([result("rope", 0), "{"])
    )
    lacking = {name: part for name, part in result("alibi", 0).items() if name != "lengths"}
    assert "alibi-s0/result.json lacks 'lengths'" in said(write([result("rope", 0), lacking]))
    assert "NaN is not a number" in said(write([result("rope", 0), result("alibi", 0) | {"step": float("nan")}]))


@pytest.mark.parametrize("name", ["times", "length"])
@pytest.mark.parametrize("wrong", ["true", True, 1.0, None, [], 0])
def test_a_length_that_is_no_whole_number_is_reported_not_raised(name, wrong, write, result):
    harmed = result("alibi", 0)
    harmed["lengths"][1][name] = wrong
    assert "a length is a whole number above zero" in said(write([result("rope", 0), harmed]))


@pytest.mark.parametrize(
    ("part", "wrong"),
    [("leader_seeds", 1e-30), ("leader_seeds", 10**30), ("seeds", 10**12), ("leaders", 3), ("leaders", [1])],
)
def test_a_plan_of_wrong_types_is_refused(part, wrong, write, result):
    folder = write([result("rope", 0)])
    about = read_checksummed(folder / "study.json")
    write_checksummed(folder / "study.json", about | {"plan": about["plan"] | {part: wrong}})
    with pytest.raises(ValueError, match=f"must be that of a study; {part} is"):
        load_study(folder)
    write_checksummed(folder / "study.json", about | {"compared": 0})
    with pytest.raises(ValueError, match="must be that of a study; compared is 0"):
        load_study(folder)


def test_a_scheme_limited_to_the_trained_length_does_not_extrapolate(write, result):
    short = result("learned", 0, level=2.4)
    for row in short["lengths"][1:]:
        row["nats_per_token"] = None
    folder = write([short, result("rope", 0), result("alibi", 0)], schemes=("learned", "rope", "alibi"))
    study = load_study(folder)
    text = " ".join(verdict(study, summarise(study)))
    assert "“learned” cannot be evaluated at 8 times that length." in text
    assert "“alibi” is not significantly worse than at the trained length" in text
    assert "“alibi” if the model must read longer inputs" in text


def test_advice_names_all_that_no_test_has_excluded(write, result):
    levels = {"rope": (2.3, 2.7), "alibi": (2.62, 2.5), "none": (3.2, 3.21)}
    runs = [result(label, seed, level=level) for label, pair in levels.items() for seed, level in enumerate(pair)]
    text = said(write(runs, schemes=tuple(levels), seeds=2))
    # two seeds exclude nothing over seeds; with each of them rope is better than none, and not always than alibi
    assert "Provisionally (2 seeds), use one of “rope” or “alibi” if texts stay within the trained length" in text
    assert "it is not significantly better than “alibi” or “none”" in text


def test_no_verdict_holds_nan_whatever_the_seeds_and_documents(write, result):
    for documents in (1, 2):
        runs = [result(label, seed, documents=documents) for label in ("rope", "alibi") for seed in range(3)]
        assert "nan" not in said(write(runs, schemes=("rope", "alibi"), seeds=3)).lower()


def test_of_many_damaged_results_the_first_are_named(write, result):
    folder = write([result("rope", seed) for seed in range(14)], seeds=14)
    for path in folder.glob("runs/*/result.json"):
        if path.parent.name != "rope-s0":
            remove_the_seal(path, None)
    text = said(folder)
    assert text.count("Left out: rope-s") == 10
    assert "3 more results cannot be used; repeating the command trains their runs again." in text
