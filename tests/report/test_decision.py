"""The decision of a study: exactly those that no test has excluded, with the effect, how sure, and the cost."""

import json

import pytest

from ordinate.core.atomic_files import write_checksummed
from ordinate.report.build import build_report
from ordinate.report.charts import COLOURS
from ordinate.report.decision import decide
from ordinate.report.decision_card import DecisionCard
from ordinate.report.read import load_study
from ordinate.report.summary import summarise
from ordinate.report.verdict import findings

SCHEMES = ("none", "sinusoidal", "rope", "alibi")


def decided(folder):
    study = load_study(folder)
    decision = decide(study, summarise(study))
    return decision, " ".join(DecisionCard.of(study, decision).lines(10_000))


def test_without_results_nothing_is_said(write):
    decision, text = decided(write([]))
    assert decision.choices == ()
    assert text.startswith("No run has finished, so nothing can be said yet.")


def test_one_seed_is_provisional(write, result):
    decision, text = decided(write([result(label, 0) for label in SCHEMES]))
    near, far = decision.choices
    assert (near.labels, near.next, near.grade) == (("rope",), "alibi", "provisional")
    assert (far.labels, far.times, far.grade) == (("alibi",), 8, "provisional")
    # alibi has about 2.4 bits: 2.6, and the difficulty of these documents
    assert near.relative == pytest.approx(near.difference / 2.44, rel=0.01)
    assert "provisional: significant on 40 documents for these trained models" in text
    assert "fewer bits per byte than “alibi”, the next best" in text
    assert "1,000 tokens a second in training (the fastest), 512 MB" in text


def test_several_seeds_are_significant(write, result):
    decision, text = decided(write([result(label, seed) for label in SCHEMES for seed in range(3)], seeds=3))
    assert decision.choices[0].grade == "significant"
    assert decision.choices[0].p < 0.05
    assert decision.answer.startswith("Use “rope” if texts stay within the trained length")
    assert "significant: 3 seeds, 40 documents, p = " in text
    assert "over seeds)" not in text


def test_the_p_value_is_the_largest_not_that_of_the_next_best(write, result):
    # alibi is the next best, and differs by the same amount with each seed; none varies
    levels = {"rope": (2.0, 2.0, 2.0), "alibi": (2.1, 2.1, 2.1), "none": (2.9, 3.0, 3.1)}
    runs = [result(label, seed, level=level) for label, own in levels.items() for seed, level in enumerate(own)]
    folder = write(runs, schemes=tuple(levels), seeds=3)
    near = decided(folder)[0].choices[0]
    tests = {entry.label: entry.behind for entry in summarise(load_study(folder))}
    assert (near.grade, near.next) == ("significant", "alibi")
    assert near.p == tests["none"].adjusted > 5 * tests["alibi"].adjusted


def test_what_is_not_excluded_is_named_with_the_seeds_that_would_decide(write, result):
    runs = [
        result(label, seed, level=level + luck)
        for label, level in (("rope", 2.4), ("alibi", 2.6))
        for seed, luck in enumerate((-0.1, 0.0, 0.1) if label == "rope" else (0.1, 0.0, -0.1))
    ]
    decision, text = decided(write(runs, schemes=("rope", "alibi"), seeds=3))
    assert decision.choices[0].labels == ("rope", "alibi")
    assert (decision.choices[0].grade, decision.choices[0].seeds_needed) == ("undecided", 7)
    assert "undecided with 3 seeds and 40 documents; about 4 more seeds would decide" in text


def test_what_every_seed_shows_is_provisional_though_not_significant_over_seeds(write, result):
    luck = {"rope": (-0.3, 0.0, 0.3), "alibi": (0.4, 0.3, 0.5)}
    runs = [result(label, seed, level=2.5 + luck[label][seed]) for label in luck for seed in range(3)]
    decision, text = decided(write(runs, schemes=("rope", "alibi"), seeds=3))
    near = decision.choices[0]
    assert (near.labels, near.open, near.grade) == (("rope",), ("alibi",), "provisional")
    assert decision.answer.startswith("Use “rope” (provisionally: 3 seeds) if texts stay within the trained length")
    assert "with each of 3 seeds, but over seeds not significantly better than “alibi”; about" in text
    assert near.interval[0] < 0
    assert "“alibi”, the next best (interval over seeds)" in text


def test_one_seed_that_contradicts_leaves_a_choice_undecided(write, result):
    luck = {"rope": (-0.3, 0.0, 0.3), "alibi": (0.4, 0.3, 0.2)}
    runs = [result(label, seed, level=2.5 + luck[label][seed]) for label in luck for seed in range(3)]
    decision, _ = decided(write(runs, schemes=("rope", "alibi"), seeds=3))
    assert decision.choices[0].grade == "undecided"
    assert decision.choices[0].labels == ("rope", "alibi")


def test_further_seeds_of_the_leading_ones_are_read_and_named(write, result):
    runs = [result(label, 0) for label in SCHEMES] + [result(label, 1) for label in ("rope", "alibi")]
    folder = write(runs)
    about = json.loads((folder / "study.json").read_text())
    about["plan"] |= {"leader_seeds": 1, "leaders": ["rope", "alibi"]}
    write_checksummed(folder / "study.json", {name: value for name, value in about.items() if name != "checksum"})
    study = load_study(folder)
    assert not study.pending
    assert [study.seeds_of(label) for label in SCHEMES] == [1, 1, 2, 2]
    decision, text = decided(folder)
    assert (decision.choices[0].labels, decision.choices[0].grade) == (("rope",), "provisional")
    assert "Provisionally (1 to 2 seeds), use “rope”" in decision.answer
    assert "with each of 1 to 2 seeds for these trained models" in text
    assert "Each was trained with one seed, and “rope” and “alibi” with 2" in " ".join(
        findings(study, summarise(study))
    )


def test_with_one_document_nothing_is_decided(write, result):
    decision, text = decided(write([result(label, 0, documents=1) for label in ("rope", "alibi")]))
    assert decision.choices[0].grade == "unknown"
    assert set(decision.choices[0].labels) == {"rope", "alibi"}
    assert "unknown: one document gives no interval" in text


def test_the_share_of_the_training_is_read_from_the_curves(write, result):
    best, other = result("rope", 0), result("alibi", 0)
    best["training"]["loss"] = [5 - 0.2 * step for step in range(20)]
    other["training"]["loss"] = [5 - 0.1 * step for step in range(20)]
    # 5 - .1 * 19 = 3.1, which the best passes at its eleventh step
    decision, text = decided(write([best, other], schemes=("rope", "alibi")))
    assert decision.training_share == pytest.approx(11 / 20)
    assert "it reached the final training loss of “alibi” after 55 % of the steps" in text
    other["training"]["loss"] = [0.1] * 20
    assert decided(write([best, other], schemes=("rope", "alibi")))[0].training_share is None


def test_it_is_written_shown_in_notebooks_and_comes_first_on_the_page(write, result):
    hostile = "<script>alert(1)"
    folder = write([result(label, 0) for label in ("rope", hostile)], schemes=("rope", hostile))
    built = build_report(folder)
    found = json.loads((folder / "decision.json").read_text())
    assert found["choices"][0]["labels"] == ["rope"]
    page = built.path.read_text(encoding="utf-8")
    parts = ("Provisionally (one seed), use", "Paired differences to the best", "Results by scheme")
    assert sorted(parts, key=page.index) == list(parts)
    assert hostile not in built._repr_html_()
    assert "Provisionally (one seed), use" in built._repr_html_()


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("page", ["#ffffff", "#15191f"])
def test_colours_of_lines_have_contrast_on_light_and_dark_pages(page):
    # WCAG 2.1, 1.4.11
    for colour in COLOURS:
        low, high = sorted((luminance(colour), luminance(page)))
        assert (high + 0.05) / (low + 0.05) >= 3
