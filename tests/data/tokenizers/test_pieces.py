"""Streaming decoding of tokens: no text is revised, and none is lost."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from ordinate.data.tokenizer import decode_stream, make_tokenizer
from ordinate.data.tokenizers.published import Published

TEXT = "naïve café — 東京タワー 🗼🏽‍♀️ и так далее\n\tx = [1, 2]  # ok  é\u0301 👩‍👩‍👧"


def bytewise():
    return make_tokenizer("bytes", {})


def byte_level():
    """As GPT-2, Llama 3 and Qwen cut: a token may end inside of a character."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator([TEXT], trainer)
    return Published(inner=inner)


def byte_fallback():
    """As Llama 2 and Mistral cut: unknown characters as bytes, a space before each word, dropped at the beginning."""
    parts = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {part: place for place, part in enumerate(parts)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    normal, back = tokenizers.normalizers, tokenizers.decoders
    inner.normalizer = normal.Sequence([normal.Prepend("▁"), normal.Replace(" ", "▁")])
    inner.decoder = back.Sequence([back.Replace("▁", " "), back.ByteFallback(), back.Fuse(), back.Strip(" ", 1, 0)])
    return Published(inner=inner)


@pytest.fixture(params=[bytewise, byte_level, byte_fallback], ids=lambda make: make.__name__)
def tokenizer(request):
    return request.param()


def test_the_pieces_are_the_text(tokenizer):
    ids = tokenizer.encode(TEXT).tolist()
    found = list(decode_stream(tokenizer, ids))
    assert "".join(found) == TEXT
    assert "\ufffd" not in "".join(found)
    assert len(found) > 20


def test_each_piece_comes_as_soon_as_it_is_complete(tokenizer):
    seen = []

    def drawn():
        for token in tokenizer.encode("ab cd 東").tolist():
            seen.append(token)
            yield token

    first = next(decode_stream(tokenizer, drawn()))
    assert first.strip() == "a" or first == "ab"
    assert len(seen) <= 2


def test_what_follows_a_prompt_keeps_its_space(tokenizer):
    whole = tokenizer.encode("big blue").tolist()
    for cut in range(1, len(whole)):
        said = tokenizer.decode(whole[:cut]) + "".join(decode_stream(tokenizer, whole[cut:], context=whole[:cut]))
        assert said == tokenizer.decode(whole)


@given(st.lists(st.integers(0, 255), max_size=40))
def test_invalid_utf8_comes_at_the_end(ids):
    assert "".join(decode_stream(bytewise(), ids)) == bytewise().decode(ids)
