"""Python's documentation as a corpus."""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ordinate.data.corpus import Corpus, Document
from ordinate.data.stdlib_files import fingerprint, source_files


class Docs(Corpus):
    """Topics of Python's language reference and docstrings of its standard library: about 2 MB of English prose.

    Files are parsed, not executed.
    """

    name = "docs"

    def __init__(self) -> None:
        self.root = Path(sysconfig.get_path("stdlib"))
        self.files = source_files(self.root)

    def documents(self) -> Iterator[Document]:
        """Yield one document for each topic, then one for each file with docstrings."""
        yield from _topics(self.root / "pydoc_data" / "topics.py")
        for file in self.files:
            text = "\n\n".join(_docstrings(file))
            if text:
                yield Document(file.relative_to(self.root).as_posix(), 0, text + "\n")

    def fingerprint(self) -> str:
        """Return a hash of Python's version and of the names, sizes and modification times of all files."""
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
                # escaped lone surrogates cannot be encoded as UTF-8
                yield text.encode("utf-8", "ignore").decode()
