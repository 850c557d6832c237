"""Which documents are learned from, and which are held out."""

from collections.abc import Callable, Iterable

from ordinate.checks import need
from ordinate.corpus import Document
from ordinate.seeds import seed_of

Held = Callable[[Document], bool]


def held_out(sources: Iterable[tuple[str, int]], share: float) -> tuple[Held, str]:
    """A rule that says of a document whether it is held out, and the rule in words.

    Whole files are held out, chosen by a hash of their names, so that nothing of a held-out file was learned from.
    When no choice of files leaves something on both sides, the last parts of each file are held out instead.

    Args:
        sources: each file's name and how many documents it was cut into.
        share: how much to hold out, in (0, 1).

    Raises:
        ValueError: a single document, which cannot be on both sides.
    """
    parts = dict(sources)
    need(0 < share < 1, "the held-out share must lie between 0 and 1", f"got {share}", "0.1 is usual")
    chosen = {source for source in parts if _place(source) < share}
    if chosen and len(chosen) < len(parts):
        return lambda document: document.source in chosen, f"{share:.0%} of the files, by a hash of their names"
    need(
        sum(parts.values()) > 1,
        "a text needs at least two documents, one of them to hold out",
        f"got {sum(parts.values())}",
        "give more text, or more files",
    )
    first = {source: count - max(1, round(count * share)) for source, count in parts.items()}
    if not any(first.values()):
        # several short files on one side: the last by name is held out
        last = max(parts)
        return lambda document: document.source == last, "the last file by name"
    return lambda document: document.part >= first[document.source], f"the last {share:.0%} of each file"


def _place(source: str) -> float:
    return seed_of(source) / 2**63
