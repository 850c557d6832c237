"""Python's own source code."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ordinate.corpus import Corpus, Document
from ordinate.sources import fingerprint, source_files


class Stdlib(Corpus):
    """The source code of Python's standard library, tests left out: about 12 MB on any machine that runs Python."""

    name = "stdlib"

    def __init__(self) -> None:
        self.root = Path(sysconfig.get_path("stdlib"))
        self.files = source_files(self.root)

    def documents(self) -> Iterator[Document]:
        """One document for each file, files that are not UTF-8 left out."""
        for file in self.files:
            try:
                text = file.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
            if text:
                yield Document(file.relative_to(self.root).as_posix(), 0, text)

    def fingerprint(self) -> str:
        """The version of Python, and names, sizes and times of all files."""
        return fingerprint(self.files)
