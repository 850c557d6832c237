"""What a report says about token embeddings that are not those of GPT-2."""

import pytest

from ordinate.report.build import build_report
from ordinate.report.read import load_study
from ordinate.report.study_facts import method, token_embeddings

GPT2, RATIO = {"scale": 1.0, "std": 0.02}, {"scale": 0.11313708498984762, "std": 0.02}
SAID = "Token embeddings have standard deviation 0.02 at initialisation, from a table multiplied by 0.1131."


def study_of(write, result, **embeddings):
    runs = [
        result(label, 0) | ({} if made is None else {"token_embeddings": made}) for label, made in embeddings.items()
    ]
    return write(runs, schemes=tuple(embeddings))


@pytest.mark.extended
def test_the_method_says_how_large_they_are(write, result):
    folder = study_of(write, result, rope=RATIO, sinusoidal=RATIO)
    study = load_study(folder)
    assert token_embeddings(study) == SAID
    assert SAID in method(study)
    assert SAID in build_report(folder).path.read_text(encoding="utf-8")


def test_nothing_is_said_where_all_are_those_of_gpt2(write, result):
    assert token_embeddings(load_study(study_of(write, result, rope=GPT2, sinusoidal=GPT2))) == ""


def test_nothing_is_said_of_results_of_earlier_versions(write, result):
    assert token_embeddings(load_study(study_of(write, result, rope=None, sinusoidal=None))) == ""
