"""Byte-pair encoding."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from ordinate.core.checks import need
from ordinate.data.tokenizer import Tokenizer, check_ids, parse_published

LARGEST = 1_000_000
# a text whose UTF-8 has every byte that UTF-8 can have
EVERY_BYTE = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10FFFF, 0x1000)]))


class Bpe(Tokenizer):
    """Byte-level byte-pair encoding (BPE): starts from bytes and repeatedly merges the most frequent adjacent pair.

    Lossless for any text.

    Args:
        size: vocabulary size; a short training text gives fewer tokens.
    Source: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, on bytes as in GPT-2.
    """

    def __init__(self, *, size: int = 4096) -> None:
        need(
            size >= 256,
            "bpe needs a size of at least 256, one token for each byte",
            f"got size {size}",
            "give 256 or more, 4096 is usual",
        )
        # memory for the whole vocabulary is allocated at once, and the process is aborted if there is none
        must, remedy = f"bpe takes a size of at most {LARGEST}", "give less; published models have up to 300000"
        need(size <= LARGEST, must, f"got size {size}", remedy)
        self.wanted = size
        self.inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        self.inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.inner.decoder = tokenizers.decoders.ByteLevel()

    @property
    def size(self) -> int:
        return self.inner.get_vocab_size()

    @property
    def options(self) -> dict[str, Any]:
        return {"size": self.wanted}

    @property
    def byte_lengths(self) -> NDArray[np.int64]:
        """Number of characters of each token: byte-level BPE represents each byte by one character."""
        letters = [self.inner.id_to_token(token) for token in range(self.size)]
        return np.array([len(token or "") for token in letters], np.int64)

    def encode(self, text: str) -> NDArray[np.integer[Any]]:
        return np.array(self.inner.encode(text, add_special_tokens=False).ids, self.dtype)

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode(check_ids(ids, self.size), skip_special_tokens=False)

    def fitted(self, texts: Iterator[str]) -> Tokenizer:
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.wanted,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        self.inner.train_from_iterator(texts, trainer)
        return self

    def state(self) -> dict[str, Any]:
        return json.loads(self.inner.to_str())

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tokenizer:
        made = cls()
        made.inner = parse_published(state)
        vocabulary = made.inner.get_vocab()
        whole = sorted(vocabulary.values()) == list(range(len(vocabulary)))
        lossless = whole and made.decode(made.encode(EVERY_BYTE).tolist()) == EVERY_BYTE
        came = "got one in which parts are missing or changed"
        need(lossless, "a tokenizer of kind bpe must encode every text", came, "copy the file again")
        return made
