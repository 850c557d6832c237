"""The text that a person means: a corpus by name, or files of their own."""

from difflib import get_close_matches
from pathlib import Path

from ordinate import catalog
from ordinate.corpora.files import Files
from ordinate.corpus import Corpus

PACKAGE = "ordinate.corpora"


def find(text: str) -> Corpus:
    """The corpus of this name, or the files at this path.

    Raises:
        ValueError: neither a corpus nor a path.
    """
    known = [name for name in catalog.names(PACKAGE) if name != "files"]
    if text in known:
        return catalog.load(PACKAGE, Corpus, text)()
    if Path(text).exists():
        return Files(path=Path(text))
    near = get_close_matches(text, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "check the path"
    raise ValueError(
        f"a text is a corpus ({', '.join(known)}) or the path of a file or folder; {text!r} is neither; {hint}"
    )
