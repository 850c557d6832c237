"""Pairs of sentences as files of tokens: some to learn from, some held out."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ordinate.checks import need
from ordinate.data.folder import identity, made, need_whole_folder
from ordinate.data.sentences import Pair, Sentences
from ordinate.data.store import SPLITS, Split
from ordinate.seeds import seed_of
from ordinate.tokenizer import Tokenizer, load_tokenizer

FORMAT = 1
SIDES = ("source", "target")
ENDS = "ends"
FILES = (
    "tokenizer.json",
    *(f"{split}-{side}{part}.npy" for split in SPLITS for side in SIDES for part in ("", f"-{ENDS}")),
)
Tokens = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Lines(Sequence[Tokens]):
    """Many lines of tokens, one behind the other.

    Args:
        tokens: of all lines.
        ends: one past the last token of each.
    """

    tokens: Tokens
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        """How many lines."""
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        """The tokens of a line, or a list of some."""
        found = range(len(self))[place]
        if isinstance(found, range):
            return [self[one] for one in found]
        return self.tokens[self.ends[found - 1] if found else 0 : self.ends[found]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class PairStore:
    """A folder with the tokens of pairs.

    Args:
        folder: where it lies.
        manifest: what it holds.
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the results of those who learn from it."""
        return identity(self.manifest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What cut both sides."""
        return load_tokenizer(self.folder)

    def lines(self, split: Split, side: str) -> Lines:
        """The sources or the targets to learn from, or those held out; both in one order."""
        name = f"{split}-{side}"
        tokens = npy.open_memmap(self.folder / f"{name}.npy", mode="r")
        return Lines(tokens, np.load(self.folder / f"{name}-{ENDS}.npy"))


def prepare_pairs(
    sentences: Sentences, folder: Path, tokenizer: Tokenizer, *, share: float = 0.1, fitted: bool = False
) -> PairStore:
    """The tokens of pairs in this folder, made unless they are there already.

    Empty sides, pairs that come twice and pairs whose sides are the same are left out. Held out is by a hash of the
    source, so that nothing of a held-out source was learned from.

    Args:
        sentences: the pairs.
        folder: where the files go.
        tokenizer: how to cut both sides; it is fitted to what is learned from.
        share: how much to hold out.
        fitted: whether the tokenizer is used as it is.

    Raises:
        ValueError: too few pairs to hold any out; a folder with other files.
        OSError: the disk is full or cannot be written; nothing half made is left.
    """
    key = {
        "format": FORMAT,
        "fingerprint": sentences.fingerprint(),
        "cut": [tokenizer.kind, tokenizer.digest if fitted else tokenizer.wish],
        "share": share,
    }
    make = lambda: _make(sentences, folder, tokenizer, share, fitted)  # noqa: E731
    return PairStore(folder, made(folder, key, FILES, sentences.name, make))


def open_pairs(folder: Path) -> PairStore:
    """The pairs in a folder.

    Raises:
        ValueError: there are none, or a file of them is not as long as it should be.
    """
    return PairStore(folder, need_whole_folder(folder, "the tokens of pairs"))


def _make(sentences: Sentences, folder: Path, tokenizer: Tokenizer, share: float, fitted: bool) -> dict[str, Any]:
    unique = dict.fromkeys(pair for pair in sentences.pairs() if pair.source and pair.target)
    pairs = [pair for pair in unique if pair.source != pair.target]
    held = {pair: seed_of(pair.source) / 2**63 < share for pair in pairs}
    parts = {"train": [p for p in pairs if not held[p]], "validation": [p for p in pairs if held[p]]}
    need(
        all(parts.values()),
        "pairs are needed on both sides, to learn from and to hold out",
        f"{sentences.name} gives {len(parts['train'])} and {len(parts['validation'])}",
        "give more pairs",
    )
    if not fitted:
        tokenizer = tokenizer.fitted(text for pair in parts["train"] for text in (pair.source, pair.target))
    tokenizer.save(folder)
    for split, found in parts.items():
        _write(folder, split, found, tokenizer)
    digest = hashlib.sha256(json.dumps([[pair.source, pair.target] for pair in pairs]).encode())
    return {
        "name": sentences.name,
        "sha256": digest.hexdigest(),
        "files": len(sentences.files),
        "train_pairs": len(parts["train"]),
        "validation_pairs": len(parts["validation"]),
        "held_out": f"{share:.0%} of the pairs, by a hash of the source",
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.size,
    }


def _write(folder: Path, split: str, pairs: list[Pair], tokenizer: Tokenizer) -> None:
    for side in SIDES:
        lines = [tokenizer.bare(getattr(pair, side)).astype(tokenizer.type) for pair in pairs]
        np.save(folder / f"{split}-{side}.npy", np.concatenate(lines))
        np.save(folder / f"{split}-{side}-{ENDS}.npy", np.cumsum([len(line) for line in lines], dtype=np.int64))
