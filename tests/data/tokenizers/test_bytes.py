import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinate.data.tokenizer import load_tokenizer, make_tokenizer
from ordinate.data.tokenizers.bytes import Bytes


@given(st.text())
def test_text_round_trips(text):
    ids = Bytes().encode(text)
    assert Bytes().decode(ids.tolist()) == text
    assert Bytes().byte_lengths[ids].sum() == len(text.encode())


def test_a_broken_character_is_marked_not_raised():
    assert Bytes().decode([0x61, 0xC3]) == "a\ufffd"


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="token ids must be in 0 to 255; got 0 to 256"):
        Bytes().decode([0, 256])


def test_it_is_saved_and_loaded(tmp_path):
    Bytes().save(tmp_path)
    assert isinstance(load_tokenizer(tmp_path), Bytes)
    assert Bytes().dtype is np.uint8


@pytest.mark.parametrize("text", ["{", '{"kind": "bytes"}', "[]"])
def test_a_damaged_file_is_refused(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match="must contain its kind and state"):
        load_tokenizer(tmp_path)


def test_an_unknown_kind_or_option_names_the_nearest(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"kind": "os", "state": {}}')
    with pytest.raises(ValueError, match="no tokenizer is named 'os'"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="did you mean 'bytes'"):
        make_tokenizer("byte", {})
    with pytest.raises(ValueError, match="did you mean 'size'"):
        make_tokenizer("bpe", {"sice": "300"})
