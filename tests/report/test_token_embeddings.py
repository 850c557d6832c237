"""What a report says about token embeddings that are not those of GPT-2."""

from ordinate.report.build import build_report
from ordinate.report.read import load_study
from ordinate.report.study_facts import method, token_embeddings

GPT2, PAPER = {"scale": 1.0, "std": 0.02}, {"scale": 5.656854249492381, "std": 1.0}
SAID = (
    "Token embeddings of sinusoidal have standard deviation 1 at initialisation, from a table multiplied by 5.657, "
    "the convention of the scheme; the usual ones have 0.02 and are not multiplied."
)


def study_of(write, result, **embeddings):
    runs = [
        result(label, 0) | ({} if made is None else {"token_embeddings": made}) for label, made in embeddings.items()
    ]
    return write(runs, schemes=tuple(embeddings))


def test_a_scheme_with_token_embeddings_of_its_authors_is_named(write, result):
    folder = study_of(write, result, rope=GPT2, sinusoidal=PAPER)
    study = load_study(folder)
    assert token_embeddings(study) == SAID
    assert SAID in method(study)
    assert SAID in build_report(folder).path.read_text(encoding="utf-8")


def test_nothing_is_said_where_all_are_those_of_gpt2(write, result):
    assert token_embeddings(load_study(study_of(write, result, rope=GPT2, sinusoidal=GPT2))) == ""


def test_nothing_is_said_of_results_of_earlier_versions(write, result):
    assert token_embeddings(load_study(study_of(write, result, rope=None, sinusoidal=None))) == ""


def test_what_the_plan_sets_is_not_a_convention(write, result):
    folder = study_of(write, result, rope={"scale": 2.0, "std": 0.02})
    study = load_study(folder)
    study.plan["embedding_scale"] = 2.0
    assert "of rope have standard deviation 0.02 at initialisation, from a table multiplied by 2, as the" in (
        token_embeddings(study)
    )
