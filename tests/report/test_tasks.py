"""Reports of tasks other than text, and of mixers."""

import csv
import re

import numpy as np
import pytest

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.evaluation.comparison import compare
from ordinate.report.build import build_report
from ordinate.report.decision import leader
from ordinate.report.metrics.translation import TranslationBitsPerByte
from ordinate.report.read import load_study
from ordinate.report.summary import study_tables, summarise
from ordinate.report.verdict import extrapolates, verdict

SHARES = {"softmax": 0.95, "linear": 0.7, "rnn": 0.065}
TASK = {"name": "recall", "options": {"pairs": 16}, "length": 31, "vocabulary": 32, "chance": 1 / 16}


def answered(label, seed, *, share=None, sequences=300, fall=0.0, asked=1, slice_name="distance"):
    """A finished run on a task whose sequences differ in difficulty, equally for all models."""
    luck = np.random.default_rng(7).random((sequences, asked))
    lengths = []
    for times in (1, 2):
        level = (SHARES.get(label, 0.5) if share is None else share) - fall * (times - 1)
        right = (luck < level).sum(1).tolist()
        part = {"from": 2, "to": 4, "asked": 50, "accuracy": level, "interval": [0.1, 0.9]}
        total = sum(right) / (sequences * asked)
        lengths.append(
            {
                "times": times,
                "length": 31 * times,
                "accuracy": total,
                "interval": [total - 0.05, total + 0.05],
                "right": right,
                "asked": [asked] * sequences,
                "slices": {slice_name: [part, part | {"from": 5, "to": 9, "accuracy": level / 2}]},
            }
        )
    return {
        "format": 2,
        "run": {"name": f"{label}-s{seed}", "label": label, "scheme": "rope", "mixer": label, "seed": seed},
        "status": "done",
        "step": 20,
        "message": "",
        "parameters": {"total": 1200, "trained": 1000, "scheme": 0, "mixer": 400, "feedforward": 64, "note": ""},
        "training": {"steps": list(range(1, 21)), "loss": [5 - 0.1 * step for step in range(20)]},
        "lengths": lengths,
        "cost": {"tokens_per_second": 1000.0, "peak_memory_bytes": 1 << 29, "seconds": 3.0},
    }


@pytest.fixture
def study(write):
    """Write a study of mixers on a task."""

    def make(results, mixers=tuple(SHARES), schemes=None, seeds=1, **changes):
        pairs = [(f"{mixer} {scheme}", scheme, mixer) for mixer in mixers for scheme in schemes or ()]
        compared = pairs or [(mixer, "rope", mixer) for mixer in mixers]
        folder = write(results, schemes=())
        about = read_checksummed(folder / "study.json")
        about["plan"] |= {"task": "recall:pairs=16", "mixers": list(mixers), "schemes": schemes, "seeds": seeds}
        about["plan"] |= {"eval_length_multiples": [1, 2], "task_samples": 300, "length": 31}
        about |= {"format": 2, "task": TASK}
        about["compared"] = [dict(zip(("label", "scheme", "mixer"), one, strict=True)) for one in compared]
        del about["text"]
        write_checksummed(folder / "study.json", about | changes)
        return folder

    return make


def said(folder):
    found = load_study(folder)
    return " ".join(verdict(found, summarise(found)))


def test_the_highest_wins_where_more_is_better(study):
    folder = study([answered(label, 0) for label in SHARES])
    found = load_study(folder)
    entries = summarise(found)
    assert [entry.label for entry in entries] == ["softmax", "linear", "rnn"]
    assert leader(entries).label == "softmax"
    assert "“softmax” leads: 9" in said(folder)
    assert entries[1].behind.difference > 0
    pair = compare(study_tables(found, longest=False))["rnn", "softmax"]
    assert pair.interval[0] <= pair.difference <= pair.interval[1] < 0
    assert pair.significant


def test_nobody_inside_the_noise_wins(study):
    folder = study([answered(label, 0, share=share) for label, share in zip(SHARES, (0.9, 0.89, 0.9), strict=True)])
    assert "no winner can be named" in said(folder)
    assert leader(summarise(load_study(folder))) is None


def test_all_right_on_both_sides_is_no_victory(study):
    folder = study(
        [answered("softmax", 0, share=1.0), answered("linear", 0, share=0.997)], mixers=("softmax", "linear")
    )
    first, second = summarise(load_study(folder))
    assert first.trained.value == 1
    assert first.trained.interval[0] < 0.99
    assert "no winner can be named" in said(folder)
    assert second.trained.interval[1] > first.trained.interval[0]


def test_overlapping_mixers_are_still_compared_on_the_same_sequences(study):
    folder = study(
        [answered("softmax", 0, share=0.90), answered("linear", 0, share=0.86)], mixers=("softmax", "linear")
    )
    text = said(folder)
    assert "“softmax” leads" in text
    assert re.search(r"the runner-up is “linear”, worse by [2-6]\.\d \[.*\] points", text)


def test_models_no_better_than_the_most_frequent_answer_are_named(study):
    text = said(study([answered(label, 0) for label in SHARES]))
    assert "Always giving the most frequent answer has accuracy 6.2 %; “rnn” is not significantly better." in text
    assert "“softmax” is not significantly better" not in text


def test_degradation_beyond_the_trained_length_is_reported(study):
    results = [answered("softmax", 0, fall=0.5), answered("linear", 0)]
    folder = study(results, mixers=("softmax", "linear"))
    entries = {entry.label: entry for entry in summarise(load_study(folder))}
    assert not extrapolates(entries["softmax"])
    assert extrapolates(entries["linear"])
    text = said(folder)
    assert "“linear” is not significantly worse than at the trained length" in text
    assert "Worse there, in accuracy: “softmax” by 5" in text
    assert "“linear” if the model must read longer inputs than in training" in text


def test_many_names_are_counted(study):
    mixers = tuple(f"mixer{number}" for number in range(15))
    text = said(study([answered(mixer, 0, share=0.5) for mixer in mixers], mixers=mixers))
    assert "mixer10”" in text
    assert "or 4 others" in text


def test_seeds_are_resampled_too(study):
    results = [answered("softmax", seed, share=share) for seed, share in enumerate((0.3, 0.6, 0.9))]
    (entry,) = summarise(load_study(study(results, mixers=("softmax",), seeds=3)))
    low, high = entry.trained.interval
    assert entry.trained.value == pytest.approx(0.6, abs=0.03)
    assert high - low > 0.4


def test_the_page_shows_mixers_with_their_schemes_and_answers_by_slice(study):
    folder = study([answered(label, 0) for label in SHARES])
    page = build_report(folder).path.read_text(encoding="utf-8")
    for part in (
        "Mixers: 3 compared on recall:pairs=16",
        '<th scope="col">mixer</th><th scope="col">scheme</th><th scope="col">accuracy</th>',
        "Results by mixer",
        "Accuracy by distance",
        "distance 2 to 4, 1x: 95.0 % [10.0, 90.0]",
        "300 fresh sequences",
        "Every mixer sees the same batches",
    ):
        assert part in page
    assert page.count("<polyline") == 3 * 2
    assert "shuffled" not in page
    assert "tokenizer" not in page
    assert "bits per byte" not in page.split("<script")[0].lower()


def test_results_csv_names_mixer_and_scheme(study):
    folder = study([answered("softmax", 0), answered("linear", 0)])
    build_report(folder)
    rows = list(csv.DictReader((folder / "results.csv").read_text().splitlines()))
    assert [(row["mixer"], row["scheme"], row["status"]) for row in rows] == [
        ("softmax", "rope", "1 done"),
        ("linear", "rope", "1 done"),
        ("rnn", "rope", "1 pending"),
    ]
    assert float(rows[0]["accuracy_1x_low"]) < float(rows[0]["accuracy_1x"]) < float(rows[0]["accuracy_1x_high"])


def test_pairs_of_mixer_and_scheme_have_two_columns(study):
    result = answered("softmax none", 0) | {"run": {"label": "softmax none", "seed": 0, "name": "x"}}
    page = build_report(study([result], mixers=("softmax",), schemes=["none", "rope"])).path.read_text(
        encoding="utf-8"
    )
    assert "Mixers and positional schemes: 2 compared" in page
    assert '<th scope="row">softmax</th><td class="name" data-head="scheme">none</td>' in page


def test_text_from_data_never_becomes_an_element(study):
    hostile = '"><script>alert(1)</script>'
    results = [answered(label, 0, slice_name=hostile) for label in SHARES]
    page = build_report(study(results, task=TASK | {"name": hostile, "options": {hostile: hostile}})).path.read_text(
        "utf-8"
    )
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_translations_are_set_beside_copies_of_the_source():
    kind = TranslationBitsPerByte()
    rows = [{"lengths": [{"chrf": chrf, "chrf_copied": 20.0}]} for chrf in (30.0, 40.0)]
    assert kind.extra_sentences("“rope”", rows) == [
        "Translations of “rope” by greedy decoding reach chrF 35.0; copying the source gives 20.0."
    ]
    rows[0]["lengths"][0]["chrf"] = rows[1]["lengths"][0]["chrf"] = 20.0
    assert kind.extra_sentences("“rope”", rows)[0].endswith("20.0, so it has not learned to translate.")
    # without sacrebleu, or by an earlier version
    assert (
        kind.extra_sentences("“rope”", [{"lengths": [{"chrf": None, "chrf_copied": None}]}, {"lengths": [{}]}]) == []
    )


def test_a_corrupt_result_is_left_out_and_reported(study):
    broken = answered("linear", 0)
    broken["lengths"][0]["right"] = []
    assert "Left out: linear-s0: the result cannot be used" in said(study([answered("softmax", 0), broken]))


def test_a_text_read_by_mixers_is_compared_by_bits(write, result):
    folder = write([result("rope", 0) | {"run": {"label": "linear", "seed": 0, "name": "linear-s0"}}])
    about = read_checksummed(folder / "study.json")
    about["plan"] |= {"mixers": ["linear"], "schemes": None, "task": "text"}
    about["compared"] = [{"label": "linear", "scheme": "rope", "mixer": "linear"}]
    write_checksummed(folder / "study.json", about)
    page = build_report(folder).path.read_text(encoding="utf-8")
    assert "Mixers: 1 compared on stdlib" in page
    assert "bits per byte" in page
