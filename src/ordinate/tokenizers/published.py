"""The tokenizer of a published model."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from ordinate.checks import need
from ordinate.tokenizer import Tokenizer


class Published(Tokenizer):
    """What a tokenizer.json of the tokenizers library says: the one that a published model was trained with.

    Tokens that it adds by itself (a token that begins a text, say) are added here too, and left out of what is read
    back. Not every text comes back letter by letter: some of them change spaces.

    Args:
        inner: the tokenizer of the library; None: one without tokens, until its state is read.
    """

    def __init__(self, *, inner: tokenizers.Tokenizer | None = None) -> None:
        self.inner = tokenizers.Tokenizer(tokenizers.models.BPE()) if inner is None else inner

    @property
    def size(self) -> int:
        """How many tokens there are, those added to its vocabulary included."""
        return max(self.inner.get_vocab().values(), default=-1) + 1

    @property
    def byte_lengths(self) -> NDArray[np.int64]:
        """The bytes of each token's text by itself."""
        texts = (self.inner.decode([token], skip_special_tokens=True) for token in range(self.size))
        return np.array([len(text.encode()) for text in texts], np.int64)

    def encode(self, text: str) -> NDArray[np.integer[Any]]:
        """The tokens of the text, however long it is, with those that the model wants around it."""
        return np.array(self._whole.encode(text).ids, self.type)

    def bare(self, text: str) -> NDArray[np.integer[Any]]:
        """The tokens of the text alone, however long it is."""
        return np.array(self._whole.encode(text, add_special_tokens=False).ids, self.type)

    @property
    def first(self) -> int | None:
        """The token that it puts in front of texts."""
        marked = self._whole.encode("a").ids
        return marked[0] if marked[:1] != self.bare("a")[:1].tolist() else None

    @property
    def mask(self) -> int | None:
        """The special token whose name says that it is a mask."""
        special = self.inner.get_added_tokens_decoder().items()
        return next((token for token, added in special if added.special and "mask" in added.content.lower()), None)

    @cached_property
    def _whole(self) -> tokenizers.Tokenizer:
        whole = tokenizers.Tokenizer.from_str(self.inner.to_str())
        # it may be set to cut texts to the length that its model was used with, or to fill them up
        whole.no_truncation()
        whole.no_padding()
        return whole

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the tokens; numbers that a model has beyond its tokenizer stand for nothing."""
        return self.inner.decode([int(token) for token in ids], skip_special_tokens=True)

    def fitted(self, texts: Iterator[str]) -> Tokenizer:
        """Refuse: its tokens are those of the model."""
        need(False, "a published tokenizer is read, not made", "got texts to fit it to", "choose bytes or bpe")
        return self

    def state(self) -> dict[str, Any]:
        """What its tokenizer.json says."""
        return json.loads(self.inner.to_str())

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tokenizer:
        """The tokenizer of a tokenizer.json."""
        try:
            return cls(inner=tokenizers.Tokenizer.from_str(json.dumps(state)))
        except Exception as error:
            # the library raises bare exceptions
            raise ValueError(f"a tokenizer.json is one of the tokenizers library; {error}; fetch it again") from None
