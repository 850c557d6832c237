"""Models with unequal numbers of seeds: the best on average may be worse on the seeds that it shares with another."""

import pytest

from ordinate.report.decision import decide, leader
from ordinate.report.decision_card import DecisionCard
from ordinate.report.difference_plot import difference_plots
from ordinate.report.grid import format_paired_difference
from ordinate.report.read import load_study
from ordinate.report.summary import summarise
from ordinate.report.svg_plots import forest_plots
from ordinate.report.verdict import findings


@pytest.fixture
def study(write, result):
    """rope is the best on average, thanks to its second seed; on the common first one alibi is, significantly."""
    runs = [result("rope", 0, level=2.6), result("rope", 1, level=2.2), result("alibi", 0, level=2.5)]
    return load_study(write(runs, schemes=("rope", "alibi"), seeds=2))


def test_the_better_one_on_the_common_seeds_is_not_excluded(study):
    entries = summarise(study)
    behind = entries[1].behind
    assert entries[0].label == "rope"
    assert behind.significant
    assert behind.difference < 0
    assert leader(entries) is None
    near = decide(study, entries).choices[0]
    assert (near.labels, near.grade, near.next) == (("rope", "alibi"), "undecided", None)


def test_no_sentence_or_picture_says_that_it_is_worse(study):
    entries = summarise(study)
    near = findings(study, entries)[0]
    assert "no winner can be named: “rope” has the lowest value" in near
    assert "it is not significantly better than “alibi”" in near
    card = " ".join(DecisionCard.of(study, decide(study, entries)).lines(10_000))
    assert "effect    not significantly better than any other" in card
    study.plan["task"] = "text"
    assert [row["state"] for row in forest_plots([({}, study)], [entries])[0]["rows"]] == ["best", "open"]


def test_a_negative_difference_has_one_sign(study):
    entries = summarise(study)
    assert difference_plots(entries, study.metric)[0]["rows"][0]["said"].startswith("-0.098 [-0.102, -0.093]")
    assert format_paired_difference(entries[1].behind, study.metric) == "-0.098 [-0.102, -0.093] significant"


def test_one_more_seed_is_asked_for_not_those_that_would_show_the_opposite(write, result):
    # the third seed of rope makes it the best; on the two common ones alibi is better by the same amount
    levels = {"rope": (2.6, 2.6, 1.9), "alibi": (2.5, 2.5)}
    runs = [result(label, seed, level=level) for label, own in levels.items() for seed, level in enumerate(own)]
    study = load_study(write(runs, schemes=tuple(levels), seeds=3))
    entries = summarise(study)
    assert [entry.label for entry in entries] == ["rope", "alibi"]
    near = decide(study, entries).choices[0]
    assert (near.labels, near.seeds, near.seeds_needed) == (("rope", "alibi"), 2, 3)
    card = " ".join(DecisionCard.of(study, decide(study, entries)).lines(10_000))
    assert "undecided with 2 seeds and 40 documents; about 1 more seed would decide" in card
    assert "If the true differences equal the observed ones" not in " ".join(findings(study, entries))
