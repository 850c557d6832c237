"""How text is cut into tokens."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordinate import catalog
from ordinate.checks import need
from ordinate.files import write_json

PACKAGE = "ordinate.tokenizers"
FILE = "tokenizer.json"
# what bytes that make no character become
UNFINISHED = "\ufffd"


class Tokenizer(ABC):
    """Text to token ids and back; the way back of the way there is the text itself.

    Must: `size`, `byte_lengths`, `encode`, `decode`, `state`, `from_state` and `fitted`.
    May: `bare`, `first` and `mask`, where it has tokens of its own.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """How many different tokens there are."""

    @property
    @abstractmethod
    def byte_lengths(self) -> NDArray[np.int64]:
        """How many bytes of text each token stands for."""

    @abstractmethod
    def encode(self, text: str) -> NDArray[np.integer[Any]]:
        """The tokens of a text."""

    def bare(self, text: str) -> NDArray[np.integer[Any]]:
        """The tokens of a text of any length, and no others."""
        return self.encode(text)

    @property
    def first(self) -> int | None:
        """The token that it puts in front of texts; None: none."""
        return None

    @property
    def mask(self) -> int | None:
        """The token that stands for a hidden one; None: none."""
        return None

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; bytes that make no character become U+FFFD."""

    @abstractmethod
    def fitted(self, texts: Iterator[str]) -> "Tokenizer":
        """This tokenizer, made to fit these texts."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What must be written down to make it again."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: dict[str, Any]) -> "Tokenizer":
        """The tokenizer that was written down."""

    @property
    def wish(self) -> dict[str, Any]:
        """The options it was made with."""
        return {}

    @property
    def digest(self) -> str:
        """What tells it from others that are not alike."""
        return hashlib.sha256(json.dumps(self.state(), sort_keys=True).encode()).hexdigest()

    @property
    def kind(self) -> str:
        """The name of its file in the catalog."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def type(self) -> type[np.integer[Any]]:
        """The smallest type that holds every token."""
        return np.uint8 if self.size <= 1 << 8 else np.uint16 if self.size <= 1 << 16 else np.uint32

    def save(self, folder: Path) -> None:
        """Write it down in a folder."""
        write_json(folder / FILE, {"kind": self.kind, "state": self.state()})


def make_tokenizer(name: str, options: dict[str, str]) -> Tokenizer:
    """The tokenizer of this name, not fitted yet."""
    kind = catalog.load(PACKAGE, Tokenizer, name)
    return kind(**catalog.bind(kind, options, {}))


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that was written down in a folder, by us or beside a published model.

    Raises:
        ValueError: the file is damaged, or of an unknown kind.
    """
    try:
        written = json.loads((folder / FILE).read_text(encoding="utf-8"))
        # what lies beside a published model is the state itself
        name, state = ("published", written) if "model" in written else (written["kind"], written["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"a tokenizer file holds its kind and state; {folder / FILE} does not ({error}); make it again"
        ) from None
    return catalog.load(PACKAGE, Tokenizer, name).from_state(state)


def pieces(tokenizer: Tokenizer, drawn: Iterable[int], *, after: Sequence[int] = ()) -> Iterator[str]:
    """The text of tokens as they come, in pieces that are never taken back: a character waits for all its bytes.

    Args:
        tokenizer: makes text of them.
        drawn: the tokens.
        after: those before them, whose text is not repeated: some tokenizers drop the space that a text begins with.
    """
    context, new = list(after), list[int]()
    for token in drawn:
        new.append(int(token))
        known, text = tokenizer.decode(context), tokenizer.decode(context + new)
        if len(text) > len(known) and not text.endswith(UNFINISHED):
            yield text[len(known) :]
            # what has been said need not be decoded again, but for how the next token goes on from it
            context, new = new, []
    rest = tokenizer.decode(context + new)[len(tokenizer.decode(context)) :]
    if rest:
        yield rest


def check_ids(ids: Iterable[int], size: int) -> list[int]:
    """The ids as a list, each known to lie in the vocabulary."""
    listed = [int(token) for token in ids]
    need(
        not listed or (min(listed) >= 0 and max(listed) < size),
        f"token ids lie in 0 to {size - 1}",
        f"got {min(listed, default=0)} to {max(listed, default=0)}",
        "use the tokenizer that the model was made for",
    )
    return listed
