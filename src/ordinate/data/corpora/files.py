"""A corpus of user-provided text files."""

import codecs
import os
from collections.abc import Iterator
from difflib import get_close_matches
from encodings.aliases import aliases
from functools import cached_property
from pathlib import Path

from ordinate.core.checks import need, shown
from ordinate.core.folder_lock import OWNER
from ordinate.data.corpus import Corpus, Document, LeftOut
from ordinate.data.stdlib_files import fingerprint, readable_name

# longer files are split into documents of about this size, so that no file need fit into memory
PIECE_BYTES = 1 << 16
SMALLEST = 1 << 11
FOLDER_SKIPS = (".git", "__pycache__", "node_modules", ".venv")
UTF_8 = "utf-8"
WIDE = ("utf-16", "utf-32")
# beginning of the study.json of a study: its checksum, then the version of its format
STUDY_START = b'{\n "checksum": "'


class Files(Corpus):
    """User-provided text: one file, or all files of a folder, recursively, in one encoding: UTF-8 unless given.

    In a folder, these are left out: hidden files, files that are not text in this encoding, empty or unreadable ones,
    links to folders and to files of the folder itself, and results of Ordinate, which are not text to train on. Long
    files are split at line ends into documents of about 64 KiB and streamed, so they may be larger than memory. A
    single file is split into about twenty documents, or into documents of 2 KiB if it is short, so that some can be
    held out.

    Args:
        path: the file or folder.
        encoding: encoding of the files, by its name in Python.
    Raises:
        ValueError: no files, or a single file that is binary or in another encoding (the byte is named); an encoding
            that Python does not have.
    """

    def __init__(self, *, path: Path, encoding: str = UTF_8) -> None:
        self.path, self.encoding = path, _text_encoding(encoding)
        self.name = readable_name(path)
        self.single = path.is_file()
        self._left = LeftOut()
        self.files = [path] if self.single else sorted(self._found(), key=lambda file: file.as_posix())
        self.piece = min(PIECE_BYTES, max(SMALLEST, path.stat().st_size // 20)) if self.single else PIECE_BYTES
        came = f"{self.name} contains none{self._left.describe(' (left out: {})')}"
        need(bool(self.files), "a text needs at least one file", came, "give another path")

    def documents(self) -> Iterator[Document]:
        """Yield the documents, files in alphabetical order."""
        root = self.path.parent if self.single else self.path
        for file in self.files if self.single else self._texts:
            yield from self._pieces_of(file, readable_name(file.relative_to(root)))

    @property
    def left_out(self) -> LeftOut:
        """The files and folders that are left out, by reason."""
        if not self.single:
            # the reasons are known once every file has been read
            _ = self._texts
        return self._left

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and modification times of all files."""
        return fingerprint(self.files) + ("" if self.encoding == UTF_8 else f" {self.encoding}")

    @cached_property
    def _texts(self) -> list[Path]:
        """The files that are text: each is read to its end, so that no file is included partially."""
        return [file for file in self.files if self._is_text(file)]

    def _is_text(self, file: Path) -> bool:
        reason = ""
        try:
            # the pieces of an empty file are none
            if sum(1 for _ in _pieces(file, "", self.piece, self.encoding)) == 0:
                reason = "empty"
        except UnicodeError as error:
            reason = "binary" if "NUL" in str(error) else f"not {self.encoding.upper()}"
        except OSError as error:
            reason = f"unreadable ({error.strerror})"
        if reason:
            self._left.add(reason, readable_name(file.relative_to(self.path)))
        return not reason

    def _pieces_of(self, file: Path, source: str) -> Iterator[Document]:
        try:
            yield from _pieces(file, source, self.piece, self.encoding)
        except UnicodeError as error:
            must = f"a text must be {self.encoding.upper()}"
            raise ValueError(
                f"{must}; {source} is not ({error}); convert it, or name its encoding (--encoding of study and train)"
            ) from None
        except OSError as error:
            raise ValueError(
                f"a text must be readable; {source} is not ({error.strerror}); give another path"
            ) from None

    def _found(self) -> Iterator[Path]:
        """Yield the files of the folder, except those that their names, or those of their folders, leave out."""

        def unreadable(error: OSError) -> None:
            self._leave_out(f"unreadable ({error.strerror})", Path(error.filename))

        for name, folders, files in os.walk(self.path, onerror=unreadable):
            place = Path(name)
            if reason := _foreign(place):
                self._leave_out(reason, place)
                folders.clear()
                continue
            folders.sort()
            for folder in tuple(folders):
                if reason := _skipped_folder(place / folder):
                    self._leave_out(reason, place / folder)
                    folders.remove(folder)
            for file in sorted(files):
                if reason := self._skipped_file(place / file):
                    self._leave_out(reason, place / file)
                else:
                    yield place / file

    def _leave_out(self, reason: str, path: Path) -> None:
        self._left.add(reason, readable_name(path.relative_to(self.path)))

    def _skipped_file(self, file: Path) -> str:
        """Return why a file is left out by its name; empty if it is not."""
        if file.name.startswith("."):
            return "hidden"
        if not file.is_file():
            return "broken link" if file.is_symlink() else "no regular file"
        if not file.is_symlink():
            return ""
        # realpath, because resolve() raises where links form a circle
        target, root = (Path(os.path.realpath(path)) for path in (file, self.path))
        return "link into the folder itself" if target.is_relative_to(root) else ""


def _skipped_folder(folder: Path) -> str:
    if folder.name in FOLDER_SKIPS or folder.name.startswith("."):
        return "hidden"
    return "link to a folder" if folder.is_symlink() else ""


def _foreign(folder: Path) -> str:
    """Return why everything in a folder is left out: it holds results, or a process is just preparing some there."""
    probed = (folder / "subject.json").is_file() and (folder / "findings").is_dir()
    try:
        with (folder / "study.json").open("rb") as file:
            studied = file.read(len(STUDY_START)) == STUDY_START
    except OSError:
        studied = False
    return "results of Ordinate" if studied or probed or (folder / OWNER).is_file() else ""


def _text_encoding(name: str) -> str:
    """Return the name of an encoding as Python writes it."""
    try:
        # encodings of bytes as text only: not base64 or rot13
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        near = get_close_matches(name[:80].lower(), sorted({*aliases, *aliases.values()}), n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near and near[0] != name.lower()
            else "give one such as latin-1, utf-16 or shift_jis"
        )
        raise ValueError(f"an encoding must be one that Python has; got {shown(name)}; {hint}") from None


def _pieces(file: Path, source: str, size: int, encoding: str) -> Iterator[Document]:
    decoder = codecs.getincrementaldecoder(encoding)()
    part, rest, seen = 0, "", 0
    with file.open("rb") as stream:
        while raw := stream.read(size):
            # characters of 16 and 32 bits have zeros
            if (found := raw.find(b"\0")) >= 0 and not encoding.startswith(WIDE):
                raise UnicodeError(f"byte {seen + found} is NUL, as in binary files")
            try:
                rest += decoder.decode(raw)
            except UnicodeDecodeError as error:
                raise UnicodeError(f"byte {seen + error.start} is invalid: {error.reason}") from None
            seen += len(raw)
            # without a line end the piece ends where it has its size, in bytes: the last character that is complete
            end = rest.rfind("\n") + 1 or len(rest)
            if end and len(raw) == size:
                yield Document(source, part, rest[:end])
                part, rest = part + 1, rest[end:]
    try:
        rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UnicodeError(f"the last character is truncated: {error.reason}") from None
    if rest:
        yield Document(source, part, rest)
