"""Python's documentation, in English."""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ordinate.corpus import Corpus, Document
from ordinate.sources import fingerprint, source_files


class Docs(Corpus):
    """The topics of Python's language reference and the docstrings of its library: about 2 MB of English prose.

    Files are read as text and parsed; nothing of them is run.
    """

    name = "docs"

    def __init__(self) -> None:
        self.root = Path(sysconfig.get_path("stdlib"))
        self.files = source_files(self.root)

    def documents(self) -> Iterator[Document]:
        """One document for each topic, then one for each file with docstrings."""
        yield from _topics(self.root / "pydoc_data" / "topics.py")
        for file in self.files:
            text = "\n\n".join(_docstrings(file))
            if text:
                yield Document(file.relative_to(self.root).as_posix(), 0, text + "\n")

    def fingerprint(self) -> str:
        """The version of Python, and names, sizes and times of all files."""
        return fingerprint(self.files)


def _topics(file: Path) -> Iterator[Document]:
    if not file.exists():
        return
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            for name, text in sorted(topics.items()):
                yield Document(f"topic/{name}", 0, text)


def _docstrings(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                # a lone surrogate, written as an escape, has no UTF-8 form
                yield text.encode("utf-8", "ignore").decode()
