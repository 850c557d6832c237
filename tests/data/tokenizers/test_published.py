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
    assert tokenizer.byte_lengths.tolist() == [0, 5, 5, 6, 5]


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
