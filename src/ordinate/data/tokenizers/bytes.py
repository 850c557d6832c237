"""Byte-level tokenizer."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordinate.data.tokenizer import Tokenizer, check_ids


class Bytes(Tokenizer):
    """UTF-8 bytes as tokens: a vocabulary of 256, no training, any language."""

    size = 256

    @property
    def byte_lengths(self) -> NDArray[np.int64]:
        return np.ones(self.size, np.int64)

    def encode(self, text: str) -> NDArray[np.uint8]:
        return np.frombuffer(text.encode("utf-8"), np.uint8)

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(check_ids(ids, self.size)).decode("utf-8", errors="replace")

    def fitted(self, texts: Iterator[str]) -> Tokenizer:
        return self

    def state(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tokenizer:
        return cls()
