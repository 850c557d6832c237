"""Mutations of valid input: values, texts and files as damaged, mistyped or hostile input has them."""

import copy
import json
import random
from typing import Any

DEEP, LONG = 3_000, 1_000_000
NUMBERS = (0, -1, 1, 3, 7, 0.5, -2.5, 1e-30, 10**9, 10**12, 1e30, 10**400, float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "",
    " ",
    "x",
    "0",
    "1e9",
    "nan",
    "true",
    "None",
    "../../etc/passwd",
    "\x1b[31mred",
    "a\0b",
    "\ud800",
    "é" * 9,
)
OTHERS = (None, True, False, "DEEP", "LONG", [], {}, [1], [None], {"x": 1})
# what replaces a word on the command line
WORDS = (
    "", " ", "0", "-1", "1", "2", "3", "1.5", "-2.5", "1e9", "1000000000000", "1e30", "9" * 400, "nan", "inf", "-inf",
    "true", "None", "x", "wide", "8,8", "8;9", "[1]", "../x", "/dev/null", "/", "a\x1bb", "é", "\udcff", "x" * 5000,
    "--", "-", "=", "rope", "1_000", "０",
)  # fmt: skip


def hostile(draw: random.Random) -> Any:
    """Draw a value that hardly any field is made for."""
    value = draw.choice(draw.choice((NUMBERS, NUMBERS, TEXTS, OTHERS)))
    return [1.0] * LONG if value == "LONG" else copy.deepcopy(value)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each part of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, part in inner for path in paths(part, (*at, key)))]


def misspelt(name: str, draw: random.Random) -> str:
    """Return a name with one letter dropped, doubled, swapped or replaced."""
    place = draw.randrange(len(name))
    before, letter, after = name[:place], name[place], name[place + 1 :]
    return draw.choice(
        [before + after, before + 2 * letter + after, before + "q" + after, before + after[:1] + letter + after[1:]]
    )


def mutated_json(value: dict[str, Any], draw: random.Random) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Return a JSON object with one part changed, what was changed, and the names on the way to it."""
    value = copy.deepcopy(value)
    path = draw.choice(paths(value)[1:])
    holder: Any = value
    for key in path[:-1]:
        holder = holder[key]
    last, names = path[-1], tuple(key for key in path if isinstance(key, str))
    place, how = ".".join(map(str, path)), draw.random()
    if how < 0.7:
        holder[last] = hostile(draw)
        return value, f"{place} = {shown(holder[last])}", names
    if how < 0.85 or not isinstance(last, str):
        del holder[last]
        return value, f"no {place}", names
    other = misspelt(last, draw)
    holder[other] = holder.pop(last)
    return value, f"{place} written {other}", (*names, other)


def mutated_bytes(raw: bytes, draw: random.Random) -> tuple[bytes, str]:
    """Return a damaged text file."""
    place = draw.randrange(len(raw) + 1)
    return draw.choice(
        [
            (raw[:place], f"truncated at byte {place} of {len(raw)}"),
            (b"", "an empty file"),
            (raw[:place] + bytes([draw.randrange(256)]) + raw[place + 1 :], f"byte {place} replaced"),
            (b"\xff" + raw, "not UTF-8"),
            (raw.decode("utf-8", "replace").encode("utf-16"), "in UTF-16"),
            (b"\xef\xbb\xbf" + raw, "with a byte order mark"),
            (b"[" * 100_000, "lists, 100,000 deep"),
            (b'{"a":' * 100_000, "objects, 100,000 deep"),
            (b"null", "null"),
            (b"[]", "a list"),
            (b'"text"', "a string"),
            (b"1e999", "an infinite number"),
            (b"9" * 10_000, "a number of 10,000 digits"),
            (raw.replace(b"{", b'{"\\ud800": 1,', 1), "a lone surrogate as a key"),
        ]
    )


def dump(value: Any) -> bytes:
    """Write JSON as Python does, NaN and infinity included; `DEEP` becomes lists inside lists."""
    return json.dumps(value).replace('"DEEP"', "[" * DEEP + "]" * DEEP).encode("utf-8", "surrogatepass")


def shown(value: Any) -> str:
    """Describe a value in a few words."""
    if isinstance(value, list) and len(value) > 5:
        return f"a list of {len(value)}"
    if value == "DEEP":
        return f"{DEEP} lists inside each other"
    text = ascii(value)
    return text if len(text) < 40 else f"{text[:30]}..."
