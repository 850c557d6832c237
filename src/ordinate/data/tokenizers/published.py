"""Tokenizers published with a model, in the format of the tokenizers library."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from ordinate.core.checks import need
from ordinate.data.tokenizer import Tokenizer, parse_published

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BYTE_NAME = re.compile(r"<0x[0-9A-F]{2}>")


class Published(Tokenizer):
    """The tokenizer that a published model was trained with, loaded from tokenizer.json.

    Special tokens that it adds (such as BOS) are added when encoding and skipped when decoding. Decoding is not
    always lossless: some tokenizers normalise whitespace.

    Args:
        inner: tokenizer of the tokenizers library; None: an empty one, until its state is loaded.
    """

    def __init__(self, *, inner: tokenizers.Tokenizer | None = None) -> None:
        self.inner = tokenizers.Tokenizer(tokenizers.models.BPE()) if inner is None else inner

    @property
    def size(self) -> int:
        """Vocabulary size, added tokens included."""
        return max(self.inner.get_vocab().values(), default=-1) + 1

    @property
    def byte_lengths(self) -> NDArray[np.int64]:
        """Number of bytes that each token adds to a text, with the space before it where the token stands for it.

        At the beginning of a text many tokenizers drop that space.
        """
        before = self.encode_plain("a").tolist()
        start = len(self.decode(before).encode())
        texts = (self.decode([*before, token]) for token in range(self.size))
        sizes = [len(text.encode()) - start for text in texts]
        return np.array([self._bytes_of(token, max(0, size)) for token, size in enumerate(sizes)], np.int64)

    def encode(self, text: str) -> NDArray[np.integer[Any]]:
        """Encode a text of any length, with special tokens."""
        return np.array(self._whole.encode(text).ids, self.dtype)

    def encode_plain(self, text: str) -> NDArray[np.integer[Any]]:
        return np.array(self._whole.encode(text, add_special_tokens=False).ids, self.dtype)

    @property
    def prefix_token(self) -> int | None:
        marked = self._whole.encode("a").ids
        return marked[0] if marked[:1] != self.encode_plain("a")[:1].tolist() else None

    @property
    def suffix_token(self) -> int | None:
        marked = self._whole.encode("a").ids
        return marked[-1] if marked[-1:] != self.encode_plain("a")[-1:].tolist() else None

    @cached_property
    def unknown_token(self) -> int | None:
        """The unknown token of the tokenizer's model, by its name or its id."""
        model = self.state()["model"]
        name = model.get("unk_token")
        return model.get("unk_id") if name is None else self.inner.token_to_id(name)

    def encode_with_ends(self, text: str) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        found = self._whole.encode(text, add_special_tokens=False)
        # bytes before each character; the offsets of the library count characters
        before = np.cumsum([0, *(len(character.encode("utf-8", "surrogatepass")) for character in text)])
        ends = np.array([end for _, end in found.offsets], np.int64)
        # the tokens of one character all end where it does; dropped whitespace counts to the token after it
        return np.array(found.ids, self.dtype), before[np.maximum.accumulate(ends)].astype(np.int64)

    def _bytes_of(self, token: int, size: int) -> int:
        """Bytes of a token; of one that is no whole character, and decodes to U+FFFD, those that it stands for."""
        name = self.inner.id_to_token(token)
        if name is None or token in self.special_tokens or REPLACEMENT not in self.decode([token]):
            return size
        # a byte by its number, as in sentencepiece, or a letter for each byte, as in GPT-2
        return 1 if BYTE_NAME.fullmatch(name) else len(name)

    @cached_property
    def special_tokens(self) -> Mapping[int, str]:
        """The added tokens that its file marks as special."""
        added = self.inner.get_added_tokens_decoder().items()
        return {token: one.content for token, one in added if one.special}

    @property
    def mask_token(self) -> int | None:
        """The first special token with "mask" in its text."""
        return next((token for token, name in self.special_tokens.items() if "mask" in name.lower()), None)

    @cached_property
    def _whole(self) -> tokenizers.Tokenizer:
        whole = parse_published(json.loads(self.inner.to_str()))
        # a published tokenizer.json may enable truncation or padding
        whole.no_truncation()
        whole.no_padding()
        return whole

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids; ids beyond the tokenizer's vocabulary (padded embeddings) decode to nothing."""
        return self.inner.decode([int(token) for token in ids], skip_special_tokens=True)

    def fitted(self, texts: Iterator[str]) -> Tokenizer:
        """Raise a ValueError: a published tokenizer cannot be trained."""
        need(False, "a published tokenizer cannot be trained", "got training texts", "choose bytes or bpe")
        return self

    def state(self) -> dict[str, Any]:
        return json.loads(self.inner.to_str())

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tokenizer:
        made = cls(inner=parse_published(state))
        # what the library writes again it need not accept
        _ = made._whole
        return made
