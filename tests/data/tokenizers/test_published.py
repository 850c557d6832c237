import json

import numpy as np
import pytest
import tokenizers

from ordinate.data.tokenizer import load_tokenizer
from ordinate.data.tokenizers.bpe import Bpe
from ordinate.data.tokenizers.published import Published

WORDS = {"<s>": 0, "[UNK]": 1, "where": 2, "tokens": 3, "stand": 4}


@pytest.fixture
def inner():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return made


def test_special_tokens_are_added_and_skipped(inner):
    tokenizer = Published(inner=inner)
    assert tokenizer.encode("where tokens stand").tolist() == [0, 2, 3, 4]
    assert tokenizer.decode([0, 2, 3, 4]) == "where tokens stand"
    assert tokenizer.decode([2, 7]) == "where"
    assert tokenizer.size == 5
    assert tokenizer.encode("x").dtype == np.uint8
    # with the space before each
    assert tokenizer.byte_lengths.tolist() == [0, 6, 6, 7, 6]


TEXT = "Wo stehen die Wörter in 東京? 🙂 Da, da."


def sentencepiece():
    """Like the tokenizers of Llama 2, Mistral and T5: words with the space before them, other characters by bytes."""
    words = ["▁Wo", "▁stehen", "▁die", "▁W", "ö", "rter", "▁in", "▁", "?", "▁D", "a", "▁d", ",", "."]
    scores = [(name, 0.0) for name in ["<unk>", *words, *(f"<0x{byte:02X}>" for byte in range(256))]]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=0, byte_fallback=True))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    fallback = [tokenizers.decoders.Metaspace(), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    made.decoder = tokenizers.decoders.Sequence(fallback)
    return made


def byte_level():
    """Like the tokenizers of GPT-2, Qwen and Llama 3: a letter for each byte."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=258, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([TEXT] * 4, trainer)
    return made


@pytest.mark.parametrize(("make", "dropped"), [(sentencepiece, 1), (byte_level, 0)])
def test_the_bytes_of_the_tokens_of_a_text_are_those_of_the_text(make, dropped):
    tokenizer = Published(inner=make())
    ids = tokenizer.encode_plain(TEXT)
    assert tokenizer.decode(ids.tolist()) == TEXT
    # the space that a tokenizer puts before a text is none of its bytes
    assert tokenizer.byte_lengths[ids].sum() == len(TEXT.encode()) + dropped


def test_the_file_beside_a_published_model_is_read(inner, tmp_path):
    (tmp_path / "tokenizer.json").write_text(inner.to_str())
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, Published)
    assert tokenizer.encode("stand").tolist() == [0, 4]
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode("stand").tolist() == [0, 4]


def test_ordinate_and_published_files_are_distinguished(tmp_path):
    Bpe(size=256).fitted(iter(["text"])).save(tmp_path)
    assert isinstance(load_tokenizer(tmp_path), Bpe)


def test_a_damaged_file_is_refused(tmp_path, inner):
    for damaged in ({"model": {"type": "Nothing"}}, {"version": "1.0"}, []):
        (tmp_path / "tokenizer.json").write_text(json.dumps(damaged))
        with pytest.raises(ValueError, match=r"a tokenizer file must contain|a tokenizer.json must be one of"):
            load_tokenizer(tmp_path)


def test_it_cannot_be_trained(inner):
    with pytest.raises(ValueError, match="a published tokenizer cannot be trained"):
        Published(inner=inner).fitted(iter(["text"]))
