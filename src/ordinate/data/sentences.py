"""Pairs of sentences to translate: those that a person means, read in place."""

import ast
import struct
import sys
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ordinate.checks import need
from ordinate.sources import fingerprint, source_files

ENDINGS = (".tsv", ".po", ".mo")
# where systems keep the catalogues of their programs
LOCALES = (Path("/usr/share/locale"), Path("/usr/local/share/locale"), Path(sys.prefix) / "share" / "locale")
MAGIC = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation.

    Args:
        source: what is read.
        target: what is to be written.
    """

    source: str
    target: str


class Sentences(ABC):
    """Pairs of sentences, in the same order each time.

    Args:
        name: what the report calls them.
        files: what they are read from.
    """

    def __init__(self, name: str, files: list[Path]) -> None:
        self.name, self.files = name, files

    @abstractmethod
    def pairs(self) -> Iterator[Pair]:
        """Every pair, one after another."""

    def fingerprint(self) -> str:
        """Names, sizes and times of all files."""
        return fingerprint(self.files)


class Docstrings(Sentences):
    """Signatures of the functions of Python's standard library, and the first line of what is said of each.

    Files are read as text and parsed; nothing of them is run.
    """

    def __init__(self) -> None:
        super().__init__("docstrings", source_files(Path(sysconfig.get_path("stdlib"))))

    def pairs(self) -> Iterator[Pair]:
        """One for each function that says what it does."""
        for file in self.files:
            try:
                tree = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
                    # a lone surrogate, written as an escape, has no UTF-8 form
                    said = text.strip().split("\n")[0].strip().encode("utf-8", "ignore").decode()
                    yield Pair(f"{node.name}({ast.unparse(node.args)})", said)


class Written(Sentences):
    """Files of pairs: `.tsv` (a source and its translation in a line, a tab between), gettext's `.po` and `.mo`."""

    def pairs(self) -> Iterator[Pair]:
        """Every pair, files in the order of their names.

        Raises:
            ValueError: a file that is not what its name says; the line is named.
        """
        for file in self.files:
            try:
                yield from READERS[file.suffix](file)
            except UnicodeDecodeError as error:
                raise ValueError(f"pairs must be UTF-8; {file} is not ({error}); convert it first") from None


def find_sentences(text: str) -> Sentences:
    """The pairs that a person means.

    Args:
        text: `docstrings`; `gettext:de`, the translations into a language that this machine's programs brought; or a
            file, or a folder of files, that end in .tsv, .po or .mo.

    Raises:
        ValueError: none of these, or nothing to read there.
    """
    if text == "docstrings":
        return Docstrings()
    kind, _, language = text.partition(":")
    if kind == "gettext" and language:
        files = sorted(file for root in LOCALES for file in root.glob(f"{language}/LC_MESSAGES/*.mo"))
        need(bool(files), "programs of this machine bring translations", f"none into {language!r}", "give a file")
        return Written(text, files)
    path = Path(text)
    need(
        path.exists(),
        "pairs are docstrings, gettext:LANGUAGE, or the path of a file or folder",
        f"{text!r} is none of them",
        "check the path",
    )
    found = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS) if path.is_dir() else [path]
    need(
        bool(found) and found[0].suffix in ENDINGS,
        f"files of pairs end in {', '.join(ENDINGS)}",
        f"{text} holds none" if path.is_dir() else f"got {text}",
        "write a line for each pair, with a tab between, and call it .tsv",
    )
    return Written(text, found)


def _tsv(file: Path) -> Iterator[Pair]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            source, tab, target = line.partition("\t")
            came = f"line {number} of {file} is {line[:40]!r}"
            need(
                bool(tab) and "\t" not in target, "a line holds a source, a tab, and its translation", came, "mend it"
            )
            yield Pair(source.strip(), target.strip())


def _mo(file: Path) -> Iterator[Pair]:
    """Source: the GNU gettext manual, The Format of GNU MO Files."""
    raw = file.read_bytes()
    order = MAGIC.get(raw[:4])
    need(order is not None and len(raw) >= 28, "an .mo file is gettext's", f"{file} is not", "compile it by msgfmt")
    try:
        _, count, sources, targets = struct.unpack_from(f"{order}4I", raw, 4)
        for place in range(count):
            texts = []
            for table in (sources, targets):
                length, start = struct.unpack_from(f"{order}2I", raw, table + 8 * place)
                # plurals stand behind a NUL, what a word is about before an EOT
                texts.append(raw[start : start + length].split(b"\0")[0].rpartition(b"\x04")[2])
            # catalogues of other encodings say so in their first entry
            yield Pair(*(text.decode("utf-8", "replace") for text in texts))
    except struct.error:
        raise ValueError(f"an .mo file is whole; {file} ends too early; compile it again") from None


def _po(file: Path) -> Iterator[Pair]:
    found: dict[str, str] = {}
    field, fuzzy, next_fuzzy = "", False, False
    for number, raw in enumerate([*file.read_text(encoding="utf-8").splitlines(), 'msgid ""'], 1):
        line = raw.strip()
        if line.startswith("#"):
            next_fuzzy |= line.startswith("#,") and "fuzzy" in line
            continue
        word, _, rest = line.partition(" ")
        if line and not line.startswith('"'):
            if word in ("msgid", "msgctxt") and "msgstr" in found:
                if not fuzzy:
                    yield Pair(found["msgid"], found["msgstr"])
                found = {}
            fuzzy, next_fuzzy = (next_fuzzy, False) if not found else (fuzzy, next_fuzzy)
            field, line = word.removesuffix("[0]"), rest.strip()
        if line:
            try:
                found[field] = found.get(field, "") + str(ast.literal_eval(line))
            except (SyntaxError, ValueError):
                raise ValueError(
                    f"a .po file holds texts in quotes; line {number} of {file} is {raw[:40]!r}; mend it"
                ) from None


READERS = {".tsv": _tsv, ".mo": _mo, ".po": _po}
