"""Tokenised sentence pairs as memory-mapped files, with a held-out split."""

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

from ordinate.core.checks import need
from ordinate.core.seeds import derive_seed
from ordinate.data.dataset_folder import build_once, data_identity, need_complete_folder
from ordinate.data.sentence_pair_sources import ParallelCorpus, SentencePair
from ordinate.data.token_store import SPLITS, Split
from ordinate.data.tokenizer import Tokenizer, load_tokenizer

FORMAT = 1
SIDES = ("source", "target")
ENDS = "ends"
FILES = (
    "tokenizer.json",
    *(f"{split}-{side}{part}.npy" for split in SPLITS for side in SIDES for part in ("", f"-{ENDS}")),
)
Tokens = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class TokenSequences(Sequence[Tokens]):
    """Token sequences of various lengths, stored concatenated.

    Args:
        tokens: the concatenated tokens.
        ends: end offset (exclusive) of each sequence.
    """

    tokens: Tokens
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        """Return the tokens of a sequence, or a list of them for a slice."""
        found = range(len(self))[index]
        if isinstance(found, range):
            return [self[one] for one in found]
        return self.tokens[self.ends[found - 1] if found else 0 : self.ends[found]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each sequence [tokens]."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class PairStore:
    """A folder of tokenised sentence pairs.

    Args:
        folder: the folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """The part of the manifest that identifies the data."""
        return data_identity(self.manifest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of both sides."""
        return load_tokenizer(self.folder)

    def sequences(self, split: Split, side: str) -> TokenSequences:
        """Return the sources or the targets of a split; both are in the same order."""
        name = f"{split}-{side}"
        tokens = npy.open_memmap(self.folder / f"{name}.npy", mode="r")
        return TokenSequences(tokens, np.load(self.folder / f"{name}-{ENDS}.npy"))


def prepare_pairs(
    sentences: ParallelCorpus, folder: Path, tokenizer: Tokenizer, *, share: float = 0.1, fitted: bool = False
) -> PairStore:
    """Tokenise sentence pairs into this folder, unless that is done already.

    Pairs with an empty side, duplicates, and pairs with identical sides are left out, and held-out pairs whose
    targets have the unknown token of a published tokenizer: bits per byte need the bytes of every token. The held-out
    split is chosen by a hash of the source, so that all pairs with the same source are on the same side.

    Args:
        sentences: the pairs.
        folder: output folder.
        tokenizer: tokenizer of both sides; trained on the training split.
        share: held-out fraction.
        fitted: whether the tokenizer is already trained.

    Raises:
        ValueError: too few pairs to hold any out; the folder contains other files.
        OSError: the disk is full or not writable; partial output is removed.
    """
    key = {
        "format": FORMAT,
        "fingerprint": sentences.fingerprint(),
        "cut": [tokenizer.kind, tokenizer.digest if fitted else tokenizer.options],
        "share": share,
    }
    make = lambda place: _make(sentences, place, tokenizer, share, fitted)  # noqa: E731
    return PairStore(folder, build_once(folder, key, FILES, sentences.name, make))


def open_pairs(folder: Path) -> PairStore:
    """Open the sentence pairs of a folder.

    Raises:
        ValueError: there are none, or a file does not have its recorded size.
    """
    return PairStore(folder, need_complete_folder(folder, "the tokens of pairs"))


def _make(
    sentences: ParallelCorpus, folder: Path, tokenizer: Tokenizer, share: float, fitted: bool
) -> dict[str, Any]:
    every = list(sentences.pairs())
    filled = [pair for pair in every if pair.source and pair.target]
    unique = dict.fromkeys(filled)
    pairs = [pair for pair in unique if pair.source != pair.target]
    unused = {
        "with an empty side": len(every) - len(filled),
        "repeated": len(filled) - len(unique),
        "with equal sides": len(unique) - len(pairs),
    }
    dropped = ", ".join(f"{count} pairs {why}" for why, count in unused.items() if count)
    held = {pair: derive_seed(pair.source) / 2**63 < share for pair in pairs}
    parts = {"train": [p for p in pairs if not held[p]], "validation": [p for p in pairs if held[p]]}
    lost = _without_unknown(parts["validation"], tokenizer) if fitted else ""
    left_out = ", ".join(filter(None, (sentences.left_out.describe(), dropped, lost)))
    need(
        all(parts.values()),
        "both the training and the held-out split need pairs",
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
        **({"left_out": left_out} if left_out else {}),
        "train_pairs": len(parts["train"]),
        "validation_pairs": len(parts["validation"]),
        "held_out": f"{share:.0%} of the pairs, by a hash of the source",
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.size,
    }


def _without_unknown(pairs: list[SentencePair], tokenizer: Tokenizer) -> str:
    """Remove pairs whose targets have unknown tokens, the bytes of which cannot be told; return what was removed."""
    known = [pair for pair in pairs if tokenizer.knows(tokenizer.encode_plain(pair.target))]
    count = len(pairs) - len(known)
    pairs[:] = known
    return f"{count} held-out pairs with unknown tokens in their targets" if count else ""


def _write(folder: Path, split: str, pairs: list[SentencePair], tokenizer: Tokenizer) -> None:
    for side in SIDES:
        lines = [tokenizer.encode_plain(getattr(pair, side)).astype(tokenizer.dtype) for pair in pairs]
        np.save(folder / f"{split}-{side}.npy", np.concatenate(lines))
        np.save(folder / f"{split}-{side}-{ENDS}.npy", np.cumsum([len(line) for line in lines], dtype=np.int64))
