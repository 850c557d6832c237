"""Resolve a `--text` argument: a corpus name, or a path."""

from difflib import get_close_matches
from pathlib import Path

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.data.corpora.files import Files
from ordinate.data.corpus import Corpus

PACKAGE = "ordinate.data.corpora"


def resolve_corpus(text: str) -> Corpus:
    """Return the corpus of this name, or the files at this path.

    Raises:
        ValueError: neither a corpus nor an existing path.
    """
    need(bool(text.strip()), "a text must be named", f"got {text!r}", "give a corpus or a path; . is this folder")
    known = [name for name in catalog.names(PACKAGE) if name != "files"]
    if text in known:
        return catalog.load(PACKAGE, Corpus, text)()
    if Path(text).exists():
        return Files(path=Path(text))
    near = get_close_matches(text, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "check the path"
    raise ValueError(
        f"a text must be a corpus ({', '.join(known)}) or the path of a file or folder; {text!r} is neither; {hint}"
    )
