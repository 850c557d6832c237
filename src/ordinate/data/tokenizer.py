"""The contract of tokenizers: encoding, decoding, training and serialisation."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from ordinate.core import catalog
from ordinate.core.atomic_files import write_json
from ordinate.core.checks import need, reading

PACKAGE = "ordinate.data.tokenizers"
FILE = "tokenizer.json"
# far above every published vocabulary
MOST_IDS = 1 << 22
# the replacement character: decodes from an incomplete UTF-8 sequence
REPLACEMENT_CHARACTER = "\ufffd"


class Tokenizer(ABC):
    """A tokenizer: text to token ids and back; decoding an encoded text returns the text.

    Must: `size`, `byte_lengths`, `encode`, `decode`, `state`, `from_state` and `fitted`.
    May: `encode_plain`, `prefix_token`, `suffix_token`, `mask_token`, `unknown_token` and `special_tokens`, if it
        has special tokens; `encode_with_ends`, if tokens and bytes of the text do not correspond one to one.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """Vocabulary size."""

    @property
    @abstractmethod
    def byte_lengths(self) -> NDArray[np.int64]:
        """Number of text bytes of each token."""

    @abstractmethod
    def encode(self, text: str) -> NDArray[np.integer[Any]]:
        """Encode a text, with special tokens if the tokenizer adds any."""

    def encode_plain(self, text: str) -> NDArray[np.integer[Any]]:
        """Encode a text of any length without special tokens."""
        return self.encode(text)

    @property
    def prefix_token(self) -> int | None:
        """The special token that `encode` prepends (BOS or CLS); None: none."""
        return None

    @property
    def suffix_token(self) -> int | None:
        """The special token that `encode` appends (EOS or SEP); None: none."""
        return None

    @property
    def mask_token(self) -> int | None:
        """The mask token; None: none."""
        return None

    @property
    def unknown_token(self) -> int | None:
        """The token that stands for text without a token of its own; None: none."""
        return None

    def knows(self, tokens: NDArray[np.integer[Any]]) -> bool:
        """Whether none of these tokens is the unknown token, whose text, and so its bytes, cannot be told."""
        return self.unknown_token is None or not bool((tokens == self.unknown_token).any())

    @property
    def special_tokens(self) -> Mapping[int, str]:
        """The special tokens by their ids, with the names that the tokenizer gives them: <s>, </s>, [CLS], <pad>."""
        return {}

    def encode_with_ends(self, text: str) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        """Encode a text without special tokens; return the tokens, and where in the text each ends [bytes]."""
        ids = self.encode_plain(text)
        return ids, self.byte_lengths[ids].cumsum()

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids; invalid UTF-8 becomes U+FFFD."""

    @abstractmethod
    def fitted(self, texts: Iterator[str]) -> "Tokenizer":
        """Return this tokenizer trained on these texts."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what `from_state` restores it from, JSON-serialisable."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: dict[str, Any]) -> "Tokenizer":
        """Restore a tokenizer from `state`."""

    @property
    def options(self) -> dict[str, Any]:
        """The options it was created with."""
        return {}

    @property
    def digest(self) -> str:
        """SHA-256 of the state, which identifies the tokenizer in files."""
        return hashlib.sha256(json.dumps(self.state(), sort_keys=True).encode()).hexdigest()

    @property
    def kind(self) -> str:
        """The name of its module in the catalog."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def dtype(self) -> type[np.integer[Any]]:
        """The smallest unsigned dtype for the vocabulary."""
        return np.uint8 if self.size <= 1 << 8 else np.uint16 if self.size <= 1 << 16 else np.uint32

    def save(self, folder: Path) -> None:
        """Save the tokenizer to a folder."""
        write_json(folder / FILE, {"kind": self.kind, "state": self.state()})


def make_tokenizer(name: str, options: dict[str, str]) -> Tokenizer:
    """Create the untrained tokenizer of this name."""
    kind = catalog.load(PACKAGE, Tokenizer, name)
    return kind(**catalog.bind(kind, options, {}))


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer.json of a folder, written by Ordinate or published with a model.

    Raises:
        ValueError: the file is corrupt, or of an unknown kind.
    """
    try:
        written = json.loads((folder / FILE).read_text(encoding="utf-8"))
        # a tokenizer.json of a published model is the bare state, without Ordinate's wrapper
        name, state = ("published", written) if "model" in written else (written["kind"], written["state"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"a tokenizer file must contain its kind and state; {folder / FILE} does not ({error}); create it again"
        ) from None
    with reading(folder / FILE):
        return catalog.load(PACKAGE, Tokenizer, name).from_state(state)


def parse_published(state: dict[str, Any]) -> tokenizers.Tokenizer:
    """Build a tokenizer of the tokenizers library from its state.

    Raises:
        ValueError: the library refuses the state, or a token id is so large that a table of all ids would not fit.
    """
    came = f"got {type(state).__name__}"
    need(isinstance(state, dict), "the state of a tokenizer must be an object", came, "download it again")
    largest = max(_token_ids(state), default=0)
    # the library allocates a table up to the largest id, and ends the process if it cannot
    must = f"token ids of a tokenizer.json must be below {MOST_IDS}"
    need(largest < MOST_IDS, must, f"got {largest}", "download it again")
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(state, allow_nan=False))
    except BaseException as error:
        # the library raises bare exceptions, and what it did not expect as a PanicException, which is none
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(
            f"a tokenizer.json must be one of the tokenizers library; got {error}; download it again"
        ) from None


def _token_ids(state: dict[str, Any]) -> Iterator[int]:
    """Yield the ids that are written in a tokenizer.json; what is malformed is left to the library."""
    model, added = state.get("model"), state.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    listed = [one.get("id") for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    named = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    yield from (token for token in (*named, *listed) if isinstance(token, int))


def decode_stream(tokenizer: Tokenizer, tokens: Iterable[int], *, context: Sequence[int] = ()) -> Iterator[str]:
    """Decode a stream of tokens incrementally; a character is yielded once all of its bytes have arrived.

    Args:
        tokenizer: decodes the tokens.
        tokens: the token stream.
        context: preceding tokens, decoded as context but not yielded: some tokenizers drop a leading space.
    """
    context, new = list(context), list[int]()
    for token in tokens:
        new.append(int(token))
        known, text = tokenizer.decode(context), tokenizer.decode(context + new)
        if len(text) > len(known) and not text.endswith(REPLACEMENT_CHARACTER):
            yield text[len(known) :]
            # only the last yielded tokens remain as context: decoding everything again would cost quadratic time
            context, new = new, []
    rest = tokenizer.decode(context + new)[len(tokenizer.decode(context)) :]
    if rest:
        yield rest


def check_ids(ids: Iterable[int], size: int) -> list[int]:
    """Return the ids as a list, or raise a ValueError if one is outside the vocabulary."""
    listed = [int(token) for token in ids]
    need(
        not listed or (min(listed) >= 0 and max(listed) < size),
        f"token ids must be in 0 to {size - 1}",
        f"got {min(listed, default=0)} to {max(listed, default=0)}",
        "use the tokenizer that the model was trained with",
    )
    return listed
