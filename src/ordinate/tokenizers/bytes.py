"""Each byte is a token."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordinate.tokenizer import Tokenizer, check_ids


class Bytes(Tokenizer):
    """The bytes of the text in UTF-8: 256 tokens, nothing to fit, any language."""

    size = 256

    @property
    def byte_lengths(self) -> NDArray[np.int64]:
        """One each."""
        return np.ones(self.size, np.int64)

    def encode(self, text: str) -> NDArray[np.uint8]:
        """The bytes."""
        return np.frombuffer(text.encode("utf-8"), np.uint8)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the bytes."""
        return bytes(check_ids(ids, self.size)).decode("utf-8", errors="replace")

    def fitted(self, texts: Iterator[str]) -> Tokenizer:
        """Itself."""
        return self

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tokenizer:
        """The same for everybody."""
        return cls()
