"""Resolve a `--text` argument: a corpus name, or a path."""

import os
from difflib import get_close_matches
from pathlib import Path

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.data.corpora.files import UTF_8, Files
from ordinate.data.corpus import Corpus

PACKAGE = "ordinate.data.corpora"


def resolve_corpus(text: str, encoding: str = UTF_8) -> Corpus:
    """Return the corpus of this name, or the files at this path.

    Args:
        text: the name or the path.
        encoding: encoding of the files.

    Raises:
        ValueError: neither a corpus nor an existing path, or an encoding that Python does not have.
    """
    need(
        bool(text.strip()), "a text must be named", f"got {shown(text)}", "give a corpus or a path; . is this folder"
    )
    known = [name for name in catalog.names(PACKAGE) if name != "files"]
    if text in known:
        came = f"got {encoding} for {text}"
        need(encoding == UTF_8, "an encoding is given for files", came, "leave --encoding out")
        return catalog.load(PACKAGE, Corpus, text)()
    # os.path.exists, because exists() raises where a path is too long
    if os.path.exists(text):
        return Files(path=Path(text), encoding=encoding)
    near = get_close_matches(text[:80], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "check the path"
    must = f"a text must be a corpus ({', '.join(known)}) or the path of a file or folder"
    raise ValueError(f"{must}; {shown(text)} is neither; {hint}")
