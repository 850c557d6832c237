"""Sources of sentence pairs for translation: docstrings, gettext catalogues, or files."""

import ast
import os
import struct
import sys
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ordinate.core.checks import need, shown
from ordinate.data.corpus import LeftOut
from ordinate.data.stdlib_files import fingerprint, readable_name, source_files

SUFFIXES = (".tsv", ".po", ".mo")
# where gettext catalogues are installed
LOCALES = (Path("/usr/share/locale"), Path("/usr/local/share/locale"), Path(sys.prefix) / "share" / "locale")
MAGIC = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation.

    Args:
        source: the source sentence.
        target: its translation.
    """

    source: str
    target: str


class ParallelCorpus(ABC):
    """A source of sentence pairs in a fixed order.

    Args:
        name: name in the report.
        files: the files they are read from.
        left_out: the files of the folder that are left out.
    """

    def __init__(self, name: str, files: list[Path], left_out: LeftOut | None = None) -> None:
        self.name, self.files, self.left_out = name, files, left_out or LeftOut()

    @abstractmethod
    def pairs(self) -> Iterator[SentencePair]:
        """Yield the pairs one by one."""

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and modification times of all files."""
        return fingerprint(self.files)


class Docstrings(ParallelCorpus):
    """Function signatures of Python's standard library, paired with the first line of each docstring.

    Files are parsed, not executed.
    """

    def __init__(self) -> None:
        super().__init__("docstrings", source_files(Path(sysconfig.get_path("stdlib"))))

    def pairs(self) -> Iterator[SentencePair]:
        """Yield one pair for each function that has a docstring."""
        for file in self.files:
            try:
                tree = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
                    # escaped lone surrogates cannot be encoded as UTF-8
                    line = text.strip().split("\n")[0].strip().encode("utf-8", "ignore").decode()
                    yield SentencePair(f"{node.name}({ast.unparse(node.args)})", line)


class ParallelFiles(ParallelCorpus):
    """Files of sentence pairs: `.tsv` (source, tab, target), and gettext's `.po` and `.mo`."""

    def pairs(self) -> Iterator[SentencePair]:
        """Yield the pairs, files in alphabetical order.

        Raises:
            ValueError: a malformed file; the line is named.
        """
        for file in self.files:
            try:
                yield from READERS[file.suffix](file)
            except UnicodeDecodeError as error:
                came = f"{readable_name(file)} is not ({error.reason} at byte {error.start})"
                raise ValueError(f"pairs must be UTF-8; {came}; convert it first") from None
            except OSError as error:
                came = f"{readable_name(file)} is not ({error.strerror})"
                raise ValueError(f"files of pairs must be readable; {came}; repair or remove it") from None


def resolve_parallel_corpus(text: str) -> ParallelCorpus:
    """Resolve a source of sentence pairs.

    Args:
        text: `docstrings`; `gettext:de`, the installed gettext catalogues of a language; or a file, or a folder of
            files, with the suffix .tsv, .po or .mo.

    Raises:
        ValueError: none of these, or no pairs there.
    """
    if text == "docstrings":
        return Docstrings()
    kind, _, language = text.partition(":")
    if kind == "gettext" and language:
        files = sorted(file for root in LOCALES for file in root.glob(f"{language}/LC_MESSAGES/*.mo"))
        need(bool(files), "gettext catalogues must be installed", f"none for {language!r}", "give a file")
        return ParallelFiles(text, files)
    path = Path(text)
    need(
        bool(text.strip()) and os.path.exists(path),
        "pairs must be docstrings, gettext:LANGUAGE, or the path of a file or folder",
        f"{shown(text)} is none of them",
        "check the path; . is this folder",
    )
    name, left = readable_name(path), LeftOut()
    found = _files(path, left) if path.is_dir() else [path] if path.is_file() else []
    came = f"{name} contains none{left.describe(' (left out: {})')}" if path.is_dir() else f"got {name}"
    need(
        bool(found) and found[0].suffix in SUFFIXES,
        f"pairs must be in files with a suffix of {', '.join(SUFFIXES)}",
        came,
        "write one pair per line, separated by a tab, to a .tsv file",
    )
    return ParallelFiles(name, found, left)


def _files(folder: Path, left: LeftOut) -> list[Path]:
    """Return the files of pairs in a folder, and note all others."""
    found = []
    for file in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        reason = "hidden" if file.name.startswith(".") else ""
        reason = reason or ("" if file.is_file() else "no regular file")
        reason = reason or ("" if file.suffix in SUFFIXES else "no file of pairs by its name")
        if reason:
            left.add(reason, readable_name(file.relative_to(folder)))
        else:
            found.append(file)
    return found


def _tsv(file: Path) -> Iterator[SentencePair]:
    # utf-8-sig: a byte order mark is no part of the text
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        if line.strip():
            source, tab, target = line.partition("\t")
            came = f"line {number} of {readable_name(file)} is {line[:40]!r}"
            need(
                bool(tab) and "\t" not in target,
                "a line must be a source, a tab and its translation",
                came,
                "correct it",
            )
            yield SentencePair(source.strip(), target.strip())


def _mo(file: Path) -> Iterator[SentencePair]:
    """Source: the GNU gettext manual, The Format of GNU MO Files."""
    raw = file.read_bytes()
    order = MAGIC.get(raw[:4])
    need(
        order is not None and len(raw) >= 28,
        "an .mo file must be a compiled gettext catalogue",
        f"{readable_name(file)} is not",
        "compile it with msgfmt",
    )
    try:
        _, count, sources, targets = struct.unpack_from(f"{order}4I", raw, 4)
        for index in range(count):
            texts = []
            for table in (sources, targets):
                length, start = struct.unpack_from(f"{order}2I", raw, table + 8 * index)
                if start + length > len(raw):
                    raise struct.error("a text beyond the end of the file")
                # plural forms follow a NUL; the context (msgctxt) precedes an EOT
                texts.append(raw[start : start + length].split(b"\0")[0].rpartition(b"\x04")[2])
            # catalogues in other encodings declare it in their first entry, which is not read: assume UTF-8
            yield SentencePair(*(text.decode("utf-8", "replace") for text in texts))
    except struct.error:
        came = f"{readable_name(file)} is truncated"
        raise ValueError(f"an .mo file must be complete; {came}; compile it again") from None


def _po(file: Path) -> Iterator[SentencePair]:
    found: dict[str, str] = {}
    field, fuzzy, next_fuzzy = "", False, False
    for number, raw in enumerate([*file.read_text(encoding="utf-8-sig").splitlines(), 'msgid ""'], 1):
        line = raw.strip()
        if line.startswith("#"):
            next_fuzzy |= line.startswith("#,") and "fuzzy" in line
            continue
        word, _, rest = line.partition(" ")
        if line and not line.startswith('"'):
            if word in ("msgid", "msgctxt") and "msgstr" in found:
                must = "an entry of a .po file must have a msgid before its msgstr"
                came = f"line {number} of {readable_name(file)} ends one without"
                need("msgid" in found, must, came, "correct it")
                if not fuzzy:
                    yield SentencePair(found["msgid"], found["msgstr"])
                found = {}
            fuzzy, next_fuzzy = (next_fuzzy, False) if not found else (fuzzy, next_fuzzy)
            field, line = word.removesuffix("[0]"), rest.strip()
        if line:
            try:
                found[field] = found.get(field, "") + str(ast.literal_eval(line))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                came = f"line {number} of {readable_name(file)} is {raw[:40]!r}"
                raise ValueError(f"texts in a .po file must be quoted; {came}; correct it") from None


READERS = {".tsv": _tsv, ".mo": _mo, ".po": _po}
