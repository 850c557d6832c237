"""Python's standard library as a corpus."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ordinate.data.corpus import Corpus, Document
from ordinate.data.stdlib_files import fingerprint, source_files


class Stdlib(Corpus):
    """Source code of Python's standard library without its tests: about 12 MB, available with every Python."""

    name = "stdlib"

    def __init__(self) -> None:
        self.root = Path(sysconfig.get_path("stdlib"))
        self.files = source_files(self.root)

    def documents(self) -> Iterator[Document]:
        """Yield one document for each file, skipping files that are not UTF-8."""
        for file in self.files:
            try:
                text = file.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
            if text:
                yield Document(file.relative_to(self.root).as_posix(), 0, text)

    def fingerprint(self) -> str:
        """Return a hash of Python's version and of the names, sizes and modification times of all files."""
        return fingerprint(self.files)
