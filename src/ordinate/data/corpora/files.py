"""A corpus of user-provided text files."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from ordinate.core.checks import need
from ordinate.data.corpus import Corpus, Document
from ordinate.data.stdlib_files import fingerprint

# longer files are split into documents of about this size, so that no file need fit into memory
PIECE_BYTES = 1 << 16
SMALLEST = 1 << 11
FOLDER_SKIPS = (".git", "__pycache__", "node_modules", ".venv")


class Files(Corpus):
    """User-provided text: one UTF-8 file, or all UTF-8 files of a folder, recursively.

    In a folder, hidden and binary files are skipped. Long files are split at line ends into documents of about 64 KiB
    and streamed, so they may be larger than memory. A single file is split into about twenty documents, or into
    documents of 2 KiB if it is short, so that some can be held out.

    Args:
        path: the file or folder.
    Raises:
        ValueError: no files, or a single file that is binary or not UTF-8 (the byte is named).
    """

    def __init__(self, *, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.single = path.is_file()
        self.files = [path] if self.single else _files(path)
        self.piece = min(PIECE_BYTES, max(SMALLEST, path.stat().st_size // 20)) if self.single else PIECE_BYTES
        need(bool(self.files), "a text needs at least one file", f"{path} contains none", "give another path")

    def documents(self) -> Iterator[Document]:
        """Yield the documents, files in alphabetical order."""
        root = self.path.parent if self.single else self.path
        for file in self.files:
            source = file.relative_to(root).as_posix()
            if self.single or self._is_text(file):
                yield from self._pieces_of(file, source)

    def _pieces_of(self, file: Path, source: str) -> Iterator[Document]:
        try:
            yield from _pieces(file, source, self.piece)
        except UnicodeError as error:
            raise ValueError(f"a text must be UTF-8; {file} is not ({error}); convert it first") from None

    def _is_text(self, file: Path) -> bool:
        # reads the whole file before any document is yielded, so that no file is included partially
        try:
            return all(True for _ in _pieces(file, "", self.piece))
        except UnicodeError:
            return False

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and modification times of all files."""
        return fingerprint(self.files)


def _files(folder: Path) -> list[Path]:
    def wanted(file: Path) -> bool:
        parts = file.relative_to(folder).parts
        return file.is_file() and not any(part.startswith(".") or part in FOLDER_SKIPS for part in parts)

    return sorted((file for file in folder.rglob("*") if wanted(file)), key=lambda file: file.as_posix())


def _pieces(file: Path, source: str, size: int) -> Iterator[Document]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    part, rest, seen = 0, "", 0
    with file.open("rb") as stream:
        while raw := stream.read(size):
            if (found := raw.find(b"\0")) >= 0:
                raise UnicodeError(f"byte {seen + found} is NUL, as in binary files")
            try:
                rest += decoder.decode(raw)
            except UnicodeDecodeError as error:
                raise UnicodeError(f"byte {seen + error.start} is invalid: {error.reason}") from None
            seen += len(raw)
            end = rest.rfind("\n") + 1 or (len(rest) if len(rest) >= size else 0)
            if end and len(raw) == size:
                yield Document(source, part, rest[:end])
                part, rest = part + 1, rest[end:]
    try:
        rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UnicodeError(f"the last character is truncated: {error.reason}") from None
    if rest:
        yield Document(source, part, rest)
