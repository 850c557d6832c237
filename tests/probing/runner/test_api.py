from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.probing._attach import attach
from ordinate.probing.runner import default_text
from ordinate.probing.runner.api import probe, text_data
from ordinate.testing.analytic_model import AnalyticModel, random_sequences


@pytest.fixture(scope="module")
def answer():
    return probe(AnalyticModel("rope"), "order_sensitivity", data=random_sequences(6, 12), windows=(2,))


def test_a_question_is_asked_in_a_line(answer):
    assert answer["change, tokens, positions and mask permuted"].value < 1e-13
    assert str(answer).startswith("Does order matter to it")
    with pytest.raises(KeyError, match="order_sensitivity: nothing"):
        answer["nothing"]


@pytest.mark.extended
def test_an_answer_shows_itself_in_a_notebook(answer):
    shown = answer._repr_html_()
    assert "<svg" in shown
    assert "<script" not in shown
    assert "http" not in shown.replace("http://www.w3.org", "")
    assert answer.finding.answer.split(".")[0] in shown


def test_unsupported_probes_are_skipped_or_raise_an_error(answer):
    found = probe(AnalyticModel("rope"), "position_content_subspaces", data=random_sequences(4, 12))
    assert found.finding.status == "skipped"
    assert "needs 15 texts or more; got 4; pass more" in str(found)
    poor = probe(AnalyticModel("rope"), "position_content_subspaces", data=random_sequences(20, 64), budget=1e6)
    assert "or a larger budget. Of 20 texts of 64" in str(poor)
    with pytest.raises(ValueError, match="did you mean 'windows'"):
        probe(AnalyticModel(), "order_sensitivity", data=random_sequences(), window=3)


def test_findings_from_random_tokens_have_a_caveat():
    found = probe(
        AnalyticModel("rope"), "order_sensitivity", text=__file__, samples=4, length=12, windows=(2,)
    ).finding
    assert (found.status, "random tokens" in found.caveats[0]) == ("measured", True)


class Reader(AnalyticModel):
    """A model of others that reads bytes."""

    model, tokenizer = None, Bytes()

    def tokenize(self, text):
        return torch.tensor(list(text.encode()))


@pytest.mark.extended
def test_the_source_of_a_default_text_says_why():
    read = text_data(Reader(vocabulary=256), None, sequences=4, length=16)
    assert "from docs (English prose, the default for models that were not trained by a study)" in read.source
    assert "from stdlib" in text_data(Reader(vocabulary=256), "stdlib", sequences=4, length=16).source


def test_other_models_are_probed_on_english_prose_by_default_and_ours_on_source():
    assert default_text.default_text(Reader(vocabulary=256)).text == "docs"
    ours = attach(Decoder(Shape(vocabulary=256, width=16, heads=2, layers=1, scheme="rope", max_length=32)))
    assert default_text.default_text(ours).text == "stdlib"


def test_models_that_are_compared_read_prose_by_default_unless_one_is_ours():
    ours = attach(Decoder(Shape(vocabulary=256, width=16, heads=2, layers=1, scheme="rope", max_length=32)))
    others = [Reader(vocabulary=256), Reader(vocabulary=256)]
    assert default_text.common_text(others) == "docs"
    assert default_text.common_text([*others, ours]) == "stdlib"


def test_a_model_of_a_study_is_probed_on_the_text_of_its_study(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("some text")

    class Plan:
        text = str(tmp_path)

    monkeypatch.setattr(default_text, "training_of", lambda model, folder: SimpleNamespace(plan=Plan))
    assert default_text.default_text(Reader(), Path("model")).text == str(tmp_path)
    Plan.text = str(tmp_path / "gone")
    chosen = default_text.default_text(Reader(), Path("model"))
    assert chosen.text == "stdlib"
    assert "gone, is gone" in chosen.reason


def test_of_an_encoder_decoder_the_answer_says_that_the_encoder_is_probed():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).eval()
    found = probe(model, "positional_heads", data=random_sequences(8, 16)).finding
    assert found.answer.endswith("Only the encoder of this model is probed, not its decoder.")
