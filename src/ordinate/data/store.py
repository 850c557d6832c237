"""A text as two memory-mapped files of tokens: one to learn from, one held out."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ordinate.checks import need
from ordinate.corpus import Corpus, Document
from ordinate.data.folder import identity, made, need_whole_folder
from ordinate.data.split import Held, held_out
from ordinate.files import write_json
from ordinate.tokenizer import Tokenizer, load_tokenizer

FORMAT = 1
Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
FILES = ("tokenizer.json", *(f"{split}.{end}" for split in SPLITS for end in ("npy", "json")))
# room for the header of an .npy file, whose length is known only in the end
HEADER = 128


@dataclass(frozen=True)
class Piece:
    """Where a document lies in a file of tokens.

    Args:
        name: the document.
        start: its first token.
        stop: one past its last token.
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class TokenStore:
    """A folder with the tokens of a text.

    Args:
        folder: where it lies.
        manifest: what it holds: name, sha256 of the text, counts, tokenizer, split.
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the results of those who learn from it."""
        return identity(self.manifest)

    @cached_property
    def train(self) -> NDArray[np.integer[Any]]:
        """The tokens to learn from, read from disk as they are asked for."""
        return self.tokens("train")

    @cached_property
    def validation(self) -> NDArray[np.integer[Any]]:
        """The tokens held out."""
        return self.tokens("validation")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What cut the text."""
        return load_tokenizer(self.folder)

    def tokens(self, split: Split) -> NDArray[np.integer[Any]]:
        """One side's tokens."""
        return npy.open_memmap(self.folder / f"{split}.npy", mode="r")

    def documents(self, split: Split) -> list[Piece]:
        """Where each document of one side lies."""
        rows = json.loads((self.folder / f"{split}.json").read_text(encoding="utf-8"))
        return [Piece(name, start, stop) for name, start, stop in rows]


def prepare(
    corpus: Corpus, folder: Path, tokenizer: Tokenizer, *, share: float = 0.1, fitted: bool = False
) -> TokenStore:
    """The tokens of a corpus in this folder, made unless they are there already.

    The text is read twice, document by document: once to know it (its hash, its files, the tokenizer's pieces), once
    to write its tokens.

    Args:
        corpus: the text.
        folder: where the token files go.
        tokenizer: how to cut it; it is fitted to the documents that are learned from only.
        share: how much to hold out.
        fitted: whether the tokenizer is used as it is.

    Raises:
        ValueError: an empty text, or too little to hold anything out; a folder with files that are not of a store.
        OSError: the disk is full or cannot be written; nothing half made is left.
    """
    key = {
        "format": FORMAT,
        "fingerprint": corpus.fingerprint(),
        "cut": [tokenizer.kind, tokenizer.digest if fitted else tokenizer.wish],
        "share": share,
    }
    manifest = made(folder, key, FILES, corpus.name, lambda: _make(corpus, folder, tokenizer, share, fitted))
    return TokenStore(folder, manifest)


def open_store(folder: Path) -> TokenStore:
    """The token store in a folder.

    Raises:
        ValueError: there is none, or a file of it is not as long as it should be.
    """
    return TokenStore(folder, need_whole_folder(folder, "the tokens of a text"))


def _make(corpus: Corpus, folder: Path, tokenizer: Tokenizer, share: float, fitted: bool) -> dict[str, Any]:
    digest, parts, size = hashlib.sha256(), Counter[str](), 0
    for document in corpus.documents():
        raw = document.text.encode("utf-8")
        digest.update(f"{document.name}\0{len(raw)}\0".encode() + raw)
        parts[document.source] += 1
        size += len(raw)
    need(size > 0, "a text must say something", f"{corpus.name} is empty", "give another text")
    held, rule = held_out(sorted(parts.items()), share)
    if not fitted:
        tokenizer = tokenizer.fitted(document.text for document in corpus.documents() if not held(document))
    tokenizer.save(folder)
    counts = _write(corpus, folder, tokenizer, held)
    return {
        "name": corpus.name,
        "sha256": digest.hexdigest(),
        "files": len(parts),
        "bytes": size,
        "tokens": sum(tokens for tokens, _ in counts.values()),
        "train_documents": counts["train"][1],
        "validation_documents": counts["validation"][1],
        "held_out": rule,
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.size,
    }


def _write(corpus: Corpus, folder: Path, tokenizer: Tokenizer, held: Held) -> dict[str, tuple[int, int]]:
    pieces: dict[str, list[list[Any]]] = {split: [] for split in SPLITS}
    ends = dict.fromkeys(SPLITS, 0)
    streams: dict[str, BinaryIO] = {}
    try:
        for split in SPLITS:
            streams[split] = (folder / f"{split}.npy").open("wb")
            streams[split].write(b"\0" * HEADER)
        for split, document in _sides(corpus, held):
            tokens = tokenizer.encode(document.text)
            streams[split].write(tokens.astype(tokenizer.type).tobytes())
            pieces[split].append([document.name, ends[split], ends[split] + len(tokens)])
            ends[split] += len(tokens)
        for split in SPLITS:
            streams[split].seek(0)
            streams[split].write(_header(ends[split], tokenizer))
    finally:
        for stream in streams.values():
            stream.close()
    for split in SPLITS:
        write_json(folder / f"{split}.json", pieces[split])
    return {split: (ends[split], len(pieces[split])) for split in SPLITS}


def _sides(corpus: Corpus, held: Held) -> Iterator[tuple[Split, Document]]:
    for document in corpus.documents():
        yield ("validation" if held(document) else "train"), document


def _header(count: int, tokenizer: Tokenizer) -> bytes:
    # the header of format 1.0, padded to a fixed length so that it can be written last
    text = repr({"descr": npy.dtype_to_descr(np.dtype(tokenizer.type)), "fortran_order": False, "shape": (count,)})
    lead = npy.magic(1, 0)
    room = HEADER - len(lead) - 2
    return lead + room.to_bytes(2, "little") + text.ljust(room - 1).encode() + b"\n"
