"""Wrong inputs of look, compare and replicate: refused before a model is loaded or measured, with what to do."""

import os
import re

import pytest
import torch

from ordinate.cli.application import app
from ordinate.core.output_folder import check_output_folder
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing import _attach, look
from ordinate.probing._adapter import ModelAdapter

SENTENCE = "the cat and the cat"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two models, a text, a folder without a model, a file, and folders with the names of files."""
    root = tmp_path_factory.mktemp("wrong")
    for name in ("tiny", "other"):
        torch.manual_seed(0)
        Decoder(Shape(vocabulary=256, width=8, heads=2, layers=1, scheme="learned", max_length=32)).save_pretrained(
            root / name
        )
        Bytes().save(root / name)
    (root / "text.txt").write_text("some words and some more\n" * 40)
    (root / "file").write_text("x")
    for folder in ("empty", "taken/look.html", "taken/compare.html", "taken/su.json"):
        (root / folder).mkdir(parents=True)
    return root


@pytest.fixture
def loads(place, monkeypatch):
    """The models that were loaded."""
    monkeypatch.chdir(place)
    found = []
    read = _attach._read
    monkeypatch.setattr(_attach, "_read", lambda folder: found.append(str(folder)) or read(folder))
    return found


def asked(words):
    return app(words, result_action="return_value")


BEFORE_LOADING = [
    (["look", "tiny", ""], "a sentence has a word or more; got ''; give one"),
    (["look", "tiny", "  \n "], "a sentence has a word or more; got '  \\n '; give one"),
    (["look", "tiny", SENTENCE, "--target", ""], "a target has a word or more; got ''; give one"),
    (["look", "tiny", SENTENCE, "--ablate", "x"], "a head is LAYER.HEAD, both counted from 0; got 'x'"),
    (["look", "tiny", SENTENCE, "--out", "file"], "output is written to a folder; got file, and file is a file"),
    (["look", "tiny", SENTENCE, "--out", "file/deep"], "got file/deep, and "),
    (["look", "tiny", SENTENCE, "--out", "taken"], "files of the output are files; taken/compare.html is a folder"),
    (["look", "tiny", SENTENCE, "--seed", "-1"], "seed must be 0 to 2^63 - 1; got -1; give such a number"),
    (["look", "tiny", SENTENCE, "--tables", "xls"], "tables are written as .csv or .parquet; got '.xls'"),
    (["compare", "tiny", "other", "--text", "stdlb"], "'stdlb' is neither; did you mean 'stdlib'?"),
    (["compare", "tiny", "other", "--out", "file"], "output is written to a folder; got file, and file is a file"),
    (["compare", "tiny", "other", "--out", "taken"], "taken/compare.html is a folder; remove it"),
    (["compare", "tiny", "other", "--seed", "-1"], "seed must be 0 to 2^63 - 1; got -1"),
    (["compare", "tiny"], "a comparison needs two models or checkpoints; got 1; give another"),
    (["compare", "tiny", "tiny"], "each model is compared once; tiny twice; leave one out"),
    (["compare", "tiny", "othr"], "othr does not exist; did you mean other?"),
    (["compare", "tiny", "empty"], "empty is none; give the folder of a run"),
    (["compare", "tiny", "other", "--tokens", "0"], "; got 0"),
    (["replicate", "suu"], "no replication is named 'suu'"),
    (["replicate", "su", "--out", "file"], "output is written to a folder; got file, and file is a file"),
    (["replicate", "su", "--out", "taken"], "taken/su.json is a folder"),
    (["replicate", "su", "--trained", "file"], "output is written to a folder; got file, and file is a file"),
    (["replicate", "su", "--seed", "-1"], "seed must be 0 to 2^63 - 1; got -1"),
    (["replicate", "abnar", "tiny", "--text", "dcs"], "'dcs' is neither; did you mean 'docs'?"),
]
BEFORE_MEASURING = [
    (["look", "tny", SENTENCE], "tny does not exist; did you mean tiny?"),
    (["look", "file", SENTENCE], "a model folder must have config.json; file is a file; give the folder"),
    (["look", "empty", SENTENCE], "a model folder must have config.json; empty lacks it; give the folder"),
    (["look", "tiny", SENTENCE, "--target", "a cat"], "tiny has no cross-attention: only encoder-decoders have"),
    (["look", "tiny", "a" * 33], "tiny reads 32 tokens; got 33; shorten it"),
    (["look", "tiny", SENTENCE, "--ablate", "1.0"], "heads are 0.0 to 0.1; got 1.0; give LAYER.HEAD"),
    (["look", "tiny", SENTENCE, "--ablate", "0.2"], "heads are 0.0 to 0.1; got 0.2; give LAYER.HEAD"),
    (["replicate", "abnar", "tny"], "tny does not exist; did you mean tiny?"),
]


@pytest.mark.parametrize(("words", "message"), BEFORE_LOADING)
def test_what_is_wrong_by_itself_is_refused_before_a_model_is_loaded(loads, words, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        asked(words)
    assert loads == []


@pytest.mark.parametrize(("words", "message"), BEFORE_MEASURING)
def test_what_a_model_does_not_fit_is_refused_before_it_is_measured(loads, words, message, monkeypatch):
    def never(*_, **__):
        raise AssertionError("measured")

    for name in ("record", "head_effects", "score_split", "head_kinds"):
        monkeypatch.setattr(f"ordinate.probing.runner.look.{name}", never)
    with pytest.raises(ValueError, match=re.escape(message)):
        asked(words)


def test_an_output_folder_may_be_new_or_old_and_must_be_writable(tmp_path, monkeypatch):
    check_output_folder(tmp_path / "new" / "deeper", (".html",))
    (tmp_path / "other.csv").mkdir()
    check_output_folder(tmp_path, (".html",))
    with pytest.raises(ValueError, match=r"other\.csv is a folder; remove it"):
        check_output_folder(tmp_path, (".html", ".csv"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="the output folder must be writable"):
        check_output_folder(tmp_path / "new", ())


def test_the_python_twins_refuse_the_same(place, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises(ValueError, match="a sentence has a word or more"):
        look("tiny", "")
    with pytest.raises(ValueError, match="no part is named"):
        _attach.attach("tiny", part="x")
    seen = look("tiny", SENTENCE)
    assert isinstance(_attach.attach("tiny"), ModelAdapter)
    with pytest.raises(ValueError, match="files of the output are files"):
        seen.save("taken")
