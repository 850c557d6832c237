"""Frequent pieces of text are tokens."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from ordinate.checks import need
from ordinate.tokenizer import Tokenizer, check_ids


class Bpe(Tokenizer):
    """Byte-pair encoding: begin with bytes, then join the most frequent neighbours again and again.

    Any text can be written, and comes back exactly.

    Args:
        size: how many tokens; a text that is too short for so many gives fewer.
    Source: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909, on bytes as in GPT-2.
    """

    def __init__(self, *, size: int = 4096) -> None:
        need(size >= 256, "bpe needs at least the 256 bytes", f"got size {size}", "give 256 or more, 4096 is usual")
        self.wanted = size
        self.inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        self.inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.inner.decoder = tokenizers.decoders.ByteLevel()

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self.inner.get_vocab_size()

    @property
    def wish(self) -> dict[str, Any]:
        """The size that was asked for."""
        return {"size": self.wanted}

    @property
    def byte_lengths(self) -> NDArray[np.int64]:
        """A byte for each letter of the token: byte-level pieces are written in one letter a byte."""
        letters = [self.inner.id_to_token(token) for token in range(self.size)]
        return np.array([len(token or "") for token in letters], np.int64)

    def encode(self, text: str) -> NDArray[np.integer[Any]]:
        """The pieces of the text."""
        return np.array(self.inner.encode(text, add_special_tokens=False).ids, self.type)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces."""
        return self.inner.decode(check_ids(ids, self.size), skip_special_tokens=False)

    def fitted(self, texts: Iterator[str]) -> Tokenizer:
        """The tokenizer with the pieces that these texts use most."""
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.wanted,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        self.inner.train_from_iterator(texts, trainer)
        return self

    def state(self) -> dict[str, Any]:
        """The pieces and how they are joined."""
        return json.loads(self.inner.to_str())

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tokenizer:
        """The tokenizer with these pieces."""
        made = cls()
        made.inner = tokenizers.Tokenizer.from_str(json.dumps(state))
        return made
