"""Text files of your own."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from ordinate.checks import need
from ordinate.corpus import Corpus, Document
from ordinate.sources import fingerprint

# longer files are cut into documents of about this size, so that no file need fit into memory
PIECE_BYTES = 1 << 16
SMALLEST = 1 << 11
FOLDER_SKIPS = (".git", "__pycache__", "node_modules", ".venv")


class Files(Corpus):
    """Your own text: one UTF-8 file, or every UTF-8 file of a folder and the folders in it.

    In a folder, hidden and binary files are passed over. A long file is cut at line ends into documents of about
    64 KiB and streamed, so it may be larger than memory. A file that stands alone is cut into about twenty, or into
    documents of 2 KiB if it is short, so that some of it can be held out.

    Args:
        path: the file or the folder.
    Raises:
        ValueError: nothing to read, or a single file that is binary or not UTF-8 (the byte is named).
    """

    def __init__(self, *, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.single = path.is_file()
        self.files = [path] if self.single else _files(path)
        self.piece = min(PIECE_BYTES, max(SMALLEST, path.stat().st_size // 20)) if self.single else PIECE_BYTES
        need(bool(self.files), "a text needs at least one file", f"{path} holds none", "give another path")

    def documents(self) -> Iterator[Document]:
        """Every document, files in the order of their names."""
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
        # to the end, before anything of it is given out: half a file would be worse than none
        try:
            return all(True for _ in _pieces(file, "", self.piece))
        except UnicodeError:
            return False

    def fingerprint(self) -> str:
        """Names, sizes and times of all files."""
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
            if (place := raw.find(b"\0")) >= 0:
                raise UnicodeError(f"byte {seen + place} is NUL, as in binary files")
            try:
                rest += decoder.decode(raw)
            except UnicodeDecodeError as error:
                raise UnicodeError(f"byte {seen + error.start} does not fit: {error.reason}") from None
            seen += len(raw)
            end = rest.rfind("\n") + 1 or (len(rest) if len(rest) >= size else 0)
            if end and len(raw) == size:
                yield Document(source, part, rest[:end])
                part, rest = part + 1, rest[end:]
    try:
        rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UnicodeError(f"the last character is cut off: {error.reason}") from None
    if rest:
        yield Document(source, part, rest)
