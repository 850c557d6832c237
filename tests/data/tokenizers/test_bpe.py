import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinate.data.tokenizer import load_tokenizer
from ordinate.data.tokenizers.bpe import Bpe

TEXTS = ["def position(attention):\n    return attention\n"] * 20
FITTED = Bpe(size=280).fitted(iter(TEXTS))


@given(st.text())
def test_any_text_round_trips_and_its_bytes_are_counted(text):
    ids = FITTED.encode(text)
    assert FITTED.decode(ids.tolist()) == text
    assert FITTED.byte_lengths[ids].sum() == len(text.encode())


def test_frequent_pieces_become_tokens():
    assert 256 < FITTED.size <= 280
    assert len(FITTED.encode(TEXTS[0])) < len(TEXTS[0]) / 2


def test_the_same_texts_give_the_same_pieces():
    assert Bpe(size=280).fitted(iter(TEXTS)).state() == FITTED.state()


def test_it_is_saved_and_loaded(tmp_path):
    FITTED.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert np.array_equal(again.encode(TEXTS[0]), FITTED.encode(TEXTS[0]))
    assert again.size == FITTED.size
    assert again.dtype is np.uint16


def test_fewer_tokens_than_bytes_are_refused():
    with pytest.raises(ValueError, match="a size of at least 256, one token for each byte; got size 100"):
        Bpe(size=100)
