"""A tokenised text as two memory-mapped token files: training and held-out."""

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

from ordinate.core.atomic_files import write_json
from ordinate.core.checks import need
from ordinate.data.corpus import Corpus, Document
from ordinate.data.dataset_folder import build_once, data_identity, need_complete_folder
from ordinate.data.heldout_split import HELD_OUT_SHARE, IsHeldOut, held_out_rule
from ordinate.data.tokenizer import Tokenizer, load_tokenizer

FORMAT = 1
Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
FILES = ("tokenizer.json", *(f"{split}.{end}" for split in SPLITS for end in ("npy", "json")))
# bytes reserved for the .npy header: its array length is known only after all tokens are written
HEADER = 128


@dataclass(frozen=True)
class DocumentSpan:
    """Token span of a document in a token file.

    Args:
        name: the document.
        start: offset of its first token.
        stop: end offset (exclusive).
    """

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class TokenStore:
    """A folder with the tokens of a text.

    Args:
        folder: the folder.
        manifest: its manifest: name, sha256 of the text, counts, tokenizer, split.
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """The part of the manifest that identifies the data."""
        return data_identity(self.manifest)

    @cached_property
    def train(self) -> NDArray[np.integer[Any]]:
        """Training tokens, memory-mapped."""
        return self.tokens("train")

    @cached_property
    def validation(self) -> NDArray[np.integer[Any]]:
        """Held-out tokens, memory-mapped."""
        return self.tokens("validation")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the text."""
        return load_tokenizer(self.folder)

    def tokens(self, split: Split) -> NDArray[np.integer[Any]]:
        """Return the tokens of a split, memory-mapped."""
        return npy.open_memmap(self.folder / f"{split}.npy", mode="r")

    def documents(self, split: Split) -> list[DocumentSpan]:
        """Return the token span of each document of a split."""
        rows = json.loads((self.folder / f"{split}.json").read_text(encoding="utf-8"))
        return [DocumentSpan(name, start, stop) for name, start, stop in rows]


def prepare_tokens(
    corpus: Corpus, folder: Path, tokenizer: Tokenizer, *, share: float = HELD_OUT_SHARE, fitted: bool = False
) -> TokenStore:
    """Tokenise a corpus into this folder, unless that is done already.

    The corpus is streamed document by document: to hash it and count its files, to train the tokenizer, and to write
    the tokens.

    Args:
        corpus: the text.
        folder: output folder.
        tokenizer: the tokenizer; trained on the training documents only.
        share: held-out fraction.
        fitted: whether the tokenizer is already trained.

    Raises:
        ValueError: an empty text, or too little to hold anything out; the folder contains other files.
        OSError: the disk is full or not writable; partial output is removed.
    """
    key = {
        "format": FORMAT,
        "fingerprint": corpus.fingerprint(),
        "cut": [tokenizer.kind, tokenizer.digest if fitted else tokenizer.options],
        "share": share,
    }
    manifest = build_once(
        folder, key, FILES, corpus.name, lambda place: _make(corpus, place, tokenizer, share, fitted)
    )
    return TokenStore(folder, manifest)


def open_store(folder: Path) -> TokenStore:
    """Open the token store of a folder.

    Raises:
        ValueError: there is none, or a file does not have its recorded size.
    """
    return TokenStore(folder, need_complete_folder(folder, "the tokens of a text"))


def _make(corpus: Corpus, folder: Path, tokenizer: Tokenizer, share: float, fitted: bool) -> dict[str, Any]:
    digest, parts, size = hashlib.sha256(), Counter[str](), 0
    for document in corpus.documents():
        raw = document.text.encode("utf-8")
        digest.update(f"{document.name}\0{len(raw)}\0".encode() + raw)
        parts[document.source] += 1
        size += len(raw)
    left_out = corpus.left_out
    came, remedy = f"{corpus.name} is empty", "give another text"
    if left_out.counts:
        came, remedy = (
            f"left out of {corpus.name}: {left_out.describe()}",
            "convert files to UTF-8, or give another text",
        )
    need(size > 0, "a text must not be empty", came, remedy)
    held, rule = held_out_rule(sorted(parts.items()), share)
    if not fitted:
        tokenizer = tokenizer.fitted(document.text for document in corpus.documents() if not held(document))
    tokenizer.save(folder)
    counts = _write(corpus, folder, tokenizer, held)
    return {
        "name": corpus.name,
        "sha256": digest.hexdigest(),
        "files": len(parts),
        "bytes": size,
        **left_out.record,
        "tokens": sum(tokens for tokens, _ in counts.values()),
        "train_documents": counts["train"][1],
        "validation_documents": counts["validation"][1],
        "held_out": rule,
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.size,
    }


def _write(corpus: Corpus, folder: Path, tokenizer: Tokenizer, held: IsHeldOut) -> dict[str, tuple[int, int]]:
    pieces: dict[str, list[list[Any]]] = {split: [] for split in SPLITS}
    ends = dict.fromkeys(SPLITS, 0)
    streams: dict[str, BinaryIO] = {}
    try:
        for split in SPLITS:
            streams[split] = (folder / f"{split}.npy").open("wb")
            streams[split].write(b"\0" * HEADER)
        for split, document in _sides(corpus, held):
            tokens = tokenizer.encode(document.text)
            streams[split].write(tokens.astype(tokenizer.dtype).tobytes())
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


def _sides(corpus: Corpus, held: IsHeldOut) -> Iterator[tuple[Split, Document]]:
    for document in corpus.documents():
        yield ("validation" if held(document) else "train"), document


def _header(count: int, tokenizer: Tokenizer) -> bytes:
    # .npy header of format 1.0, padded to a fixed length so that it can be written last
    text = repr({"descr": npy.dtype_to_descr(np.dtype(tokenizer.dtype)), "fortran_order": False, "shape": (count,)})
    lead = npy.magic(1, 0)
    room = HEADER - len(lead) - 2
    return lead + room.to_bytes(2, "little") + text.ljust(room - 1).encode() + b"\n"
