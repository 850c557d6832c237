"""Gates of data: folders of text, images and sentence pairs, and tokenizer files."""

import json
import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ordinate.data.image_sources import resolve_images
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.data.sentence_pair_sources import resolve_parallel_corpus
from ordinate.data.tokenizer import FILE, Tokenizer, load_tokenizer, make_tokenizer
from tests.bad_input.intake import mutation
from tests.bad_input.intake.outcome import Attempt, Wrong

TEXT = "Some lines of text, é and 漢字.\n" * 40
NAMES = (
    b"plain.txt",
    b"latin-\xe9.txt",
    b"\x1b[31mred.txt",
    b"line\nbreak.txt",
    "ü漢.txt".encode(),
    b"a" * 250,
    b" ",
    b"-x",
)


def text(draw: random.Random, folder: Path) -> Attempt:
    """A folder of text in which one file has another name, encoding or kind."""
    root = folder / "text"
    root.mkdir()
    (root / "good.txt").write_text(TEXT)
    raw = TEXT.encode()
    name = os.fsdecode(draw.choice(NAMES))
    file = root / name
    how, write = draw.choice(FILES)
    write(file, raw, draw)
    single = draw.random() < 0.3
    there = file if single else root

    def ask() -> list[int]:
        corpus = resolve_corpus(str(there))
        found = list(corpus.documents())
        whole = "".join(document.text for document in found if document.source == "good.txt")
        others = len({document.source for document in found}) - bool(whole)
        if not single and whole != TEXT:
            raise Wrong("the good file is not read as it is")
        if not single and how != "a folder" and others + sum(corpus.left_out.counts.values()) == 0:
            raise Wrong("a file is neither read nor reported as left out")
        for document in found:
            document.name.encode("utf-8")
        corpus.fingerprint()
        return [len(whole)]

    return Attempt(
        f"{name!r}: {how}{' on its own' if single else ''}",
        ("text", file.name.encode("utf-8", "backslashreplace").decode()),
        ask,
    )


def _as(change: Callable[[bytes, random.Random], bytes]) -> Callable[[Path, bytes, random.Random], None]:
    return lambda file, raw, draw: file.write_bytes(change(raw, draw)) and None


def _fifo(file: Path, raw: bytes, draw: random.Random) -> None:
    os.mkfifo(file)


def _link(target: str) -> Callable[[Path, bytes, random.Random], None]:
    return lambda file, raw, draw: file.symlink_to(target)


FILES: list[tuple[str, Callable[[Path, bytes, random.Random], Any]]] = [
    ("in order", _as(lambda raw, draw: raw)),
    ("empty", _as(lambda raw, draw: b"")),
    ("in UTF-16", _as(lambda raw, draw: raw.decode().encode("utf-16"))),
    ("in Latin-1", _as(lambda raw, draw: "été".encode("latin-1") * 50)),
    ("truncated inside a character", _as(lambda raw, draw: raw[: raw.index("é".encode()) + 1])),
    ("with a NUL", _as(lambda raw, draw: raw[:300] + b"\0" + raw[300:])),
    ("random bytes", _as(lambda raw, draw: draw.randbytes(2000))),
    ("one line of 10^6 characters", _as(lambda raw, draw: b"x" * 10**6)),
    ("with a byte order mark", _as(lambda raw, draw: b"\xef\xbb\xbf" + raw)),
    ("control characters", _as(lambda raw, draw: b"\x1b[2J\x07" + raw)),
    ("a pipe", _fifo),
    ("a broken link", _link("nowhere")),
    ("a link to itself", _link(".")),
    ("a link to a device", _link("/dev/zero")),
    ("a folder", lambda file, raw, draw: file.mkdir()),
]


def images(draw: random.Random, folder: Path) -> Attempt:
    """A folder of images in which one file is damaged or has another name."""
    from PIL import Image

    root, size = folder / "images", draw.choice([8, 8, 8, 0, -1, 10**9])
    for label in ("a", "b"):
        (root / label).mkdir(parents=True)
        Image.fromarray(np.zeros((5, 7, 3), np.uint8)).save(root / label / "good.png")
    raw = (root / "a" / "good.png").read_bytes()
    name = os.fsdecode(draw.choice(NAMES)[:200]) + ".png"
    file = root / draw.choice(["a", "b"]) / name
    how, damaged = draw.choice([
        ("in order", raw), ("empty", b""), ("truncated", raw[: draw.randrange(len(raw))]), ("text", TEXT.encode()),
        ("a flipped bit", _flipped(raw, draw)), ("of 10^10 pixels", _huge(raw)), ("a GIF header", b"GIF89a" + raw),
    ])  # fmt: skip
    if draw.random() < 0.15:
        how, damaged = "a pipe", b""
        os.mkfifo(file)
    else:
        file.write_bytes(damaged)

    def ask() -> list[float]:
        found = resolve_images(str(root), size)
        pixels = [image.pixels for image in found.images()]
        if any(one.shape != (3, size, size) for one in pixels):
            raise Wrong("an image of another size")
        names = [image.name for image in found.images()]
        if len(names) != (2 if how == "a pipe" else 3):
            raise Wrong(f"{len(names)} of 3 images")
        "".join([*names, found.name, *found.classes]).encode("utf-8")
        return [float(one.sum()) for one in pixels]

    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return Attempt(f"{name!r}: {how}, --image-size {size}", (shown, "image"), ask)


def _flipped(raw: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ (1 << draw.randrange(8))]) + raw[place + 1 :]


def _huge(raw: bytes) -> bytes:
    """A PNG whose header has a width and height of 10^5."""
    import zlib

    head = b"IHDR" + (10**5).to_bytes(4, "big") * 2 + raw[24:29]
    return raw[:12] + head + zlib.crc32(head).to_bytes(4, "big") + raw[33:]


def pairs(draw: random.Random, folder: Path) -> Attempt:
    """A file or folder of sentence pairs, damaged."""
    root = folder / "pairs"
    root.mkdir()
    suffix = draw.choice([".tsv", ".po", ".mo"])
    raw = {".tsv": b"a house\tein Haus\nred\trot\n", ".mo": _catalogue(), ".po":
           b'msgid "a house"\nmsgstr "ein Haus"\n\nmsgid "red"\nmsgstr "rot"\n'}[suffix]  # fmt: skip
    name = os.fsdecode(draw.choice(NAMES)[:200]) + suffix
    how, damaged = draw.choice([
        ("in order", raw),
        *[(what, changed) for changed, what in (mutation.mutated_bytes(raw, draw) for _ in range(6))],
        ("a flipped bit", _flipped(raw, draw)), ("in Latin-1", raw.replace(b"a", b"\xe9")),
        ("a huge count", raw[:8] + b"\xff" * 4 + raw[12:]), ("a huge offset", raw[:12] + b"\xff" * 8 + raw[20:]),
        ("without a tab", raw.replace(b"\t", b" ")), ("an expression", raw.replace(b'"rot"', b"__import__('os')")),
        ("deep brackets", raw.replace(b'"rot"', b"(" * 5000)),
    ])  # fmt: skip
    file = root / name
    if draw.random() < 0.1:
        how = "a pipe"
        os.mkfifo(file)
    else:
        file.write_bytes(damaged)
    there = draw.choice([root, file])

    def ask() -> list[int]:
        corpus = resolve_parallel_corpus(str(there))
        found = list(corpus.pairs())
        for pair in found:
            (pair.source + pair.target + corpus.name).encode("utf-8")
        if how == "in order" and [(pair.source, pair.target) for pair in found] != [
            ("a house", "ein Haus"),
            ("red", "rot"),
        ]:
            raise Wrong(f"read as {found}")
        corpus.fingerprint()
        return [len(found)]

    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return Attempt(f"{name!r}: {how}", (shown, "pairs"), ask)


def _catalogue() -> bytes:
    """A compiled gettext catalogue of two entries."""
    import struct

    texts = [b"a house", b"red", b"ein Haus", b"rot"]
    start, entries, data = 28 + 32, [], b""
    for one in texts:
        entries.append(struct.pack("<2I", len(one), start + len(data)))
        data += one + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, 2, 28, 28 + 16, 0, 28 + 32) + b"".join(entries) + data


@cache
def tokenizer_state(kind: str) -> str:
    """Return a valid tokenizer.json."""
    if kind == "bytes":
        return json.dumps({"kind": "bytes", "state": {}})
    fitted: Tokenizer = make_tokenizer("bpe", {"size": "270"}).fitted(iter([TEXT]))
    return json.dumps({"kind": "bpe", "state": fitted.state()} if kind == "bpe" else fitted.state())


def tokenizer(draw: random.Random, folder: Path) -> Attempt:
    """A tokenizer.json with one value changed, or damaged."""
    kind = draw.choice(["bytes", "bpe", "bpe", "published", "published"])
    value = json.loads(tokenizer_state(kind))
    if draw.random() < 0.25:
        raw, what = mutation.mutated_bytes(tokenizer_state(kind).encode(), draw)
    else:
        changed, what, _ = mutation.mutated_json(value, draw)
        raw = mutation.dump(changed)
    (folder / FILE).write_bytes(raw)

    def ask() -> list[int]:
        made = load_tokenizer(folder)
        ids = [int(token) for token in made.encode(TEXT)]
        if any(token >= made.size for token in ids):
            raise Wrong("a token beyond the vocabulary")
        if made.kind != "published" and made.decode(ids) != TEXT:
            raise Wrong("the decoded text is another one")
        if len(made.byte_lengths) != made.size:
            raise Wrong("lengths of other tokens")
        return ids

    return Attempt(f"{kind}: {what}", (FILE,), ask)
