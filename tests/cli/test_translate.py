import sys

import pytest

from ordinate.cli.application import app
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.decoder import Decoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape

SIGNS = {"vocabulary": 258, "start": 257, "end": 256, "padding": 257}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    EncoderDecoder(EncoderDecoderShape(width=16, layers=1, heads=2, **SIGNS)).save_pretrained(made)
    Bytes().save(made)
    return made


def run(capsys, *words):
    assert app([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_a_sentence_a_file_and_a_pipe_are_translated_alike(folder, tmp_path, capsys, monkeypatch):
    import io

    said = run(capsys, "translate", folder, "one", "--max-new-tokens", 6)
    assert said.count("\n") == 1
    (tmp_path / "in.txt").write_text("one\n\nfour words of it\n")
    many = run(capsys, "translate", folder, tmp_path / "in.txt", "--max-new-tokens", 6).split("\n")
    assert len(many) == 4
    assert many[1] == ""
    # a translation does not depend on the batch
    assert many[0] + "\n" == said
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n"))
    assert run(capsys, "translate", folder, "--max-new-tokens", 6) == said


def test_a_translation_does_not_control_the_terminal(folder, capsys, monkeypatch):
    monkeypatch.setattr(Bytes, "decode", lambda *_: "\x1b[2J")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(capsys, "translate", folder, "one", "--max-new-tokens", 2) == "\\x1b[2J\n"


@pytest.mark.extended
def test_beam_search_and_sampling_follow_their_options(folder, capsys):
    ask = ("translate", folder, "one", "--max-new-tokens", 8, "--beams", 1)
    assert run(capsys, *ask) == run(capsys, *ask)
    drawn = [run(capsys, *ask, "--temperature", 2.0, "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert run(capsys, "translate", folder, "one", "--beams", 2, "--length-penalty", 2.0, "--max-new-tokens", 4)


def test_cross_attention_is_plotted_in_one_file_with_escaped_text(folder, tmp_path, capsys):
    path = tmp_path / "map.svg"
    run(capsys, "translate", folder, "<a b>", "--max-new-tokens", 4, "--plot", path)
    picture = path.read_text(encoding="utf-8")
    assert ">0 &lt;</text>" in picture
    assert ">2 ␣</text>" in picture


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("one", "--beams", "0"), "beams must be above zero; got 0; give a positive beams"),
        (
            ("one", "--temperature", "1.0"),
            "a temperature samples one text; beam search is deterministic; got 4 beams",
        ),
        (("one", "--beams", "1", "--length-penalty", "2"), "a length penalty ranks beams; got 2.0 with one beam"),
        (("one", "--target-length", "3"), "scales the source to the target's length; got one; leave length out"),
        (("one", "--plot", "map.pdf"), "no plot format is named '.pdf'"),
        (("sentences.txt",), "a file of sentences must exist; got sentences.txt; check the path"),
        (("  ",), "the text must not be empty; got no sentence"),
        (("one", "--beams", "400"), "beams times 2 must be at most the vocabulary; got 400 beams"),
    ],
)
def test_invalid_options_are_reported(folder, words, match):
    with pytest.raises(ValueError, match=match):
        app(["translate", str(folder), *words])


def test_a_model_of_another_kind_is_rejected(tmp_path, folder):
    with pytest.raises(ValueError, match=r"must contain config.json; .* does not; give the folder that"):
        app(["translate", str(tmp_path), "one"])
    Decoder(Shape(vocabulary=256, width=16, layers=1, heads=2)).save_pretrained(tmp_path)
    Bytes().save(tmp_path)
    with pytest.raises(
        ValueError, match=r"kind encoder-decoder is needed; .*kind decoder; use it with `ordinate generate`"
    ):
        app(["translate", str(tmp_path), "one"])
    small = tmp_path / "small"
    EncoderDecoder(EncoderDecoderShape(vocabulary=20, width=16, layers=1, heads=2)).save_pretrained(small)
    Bytes().save(small)
    with pytest.raises(
        ValueError,
        match="every token of the tokenizer must be in the model's vocabulary; got 256 tokens for a model of 20",
    ):
        app(["translate", str(small), "one"])
