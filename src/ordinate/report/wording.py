"""Names and lists of names in the sentences of a report."""

from collections.abc import Sequence

# longer lists are cut after this many names; the rest are counted
MAX_NAMED = 10


def quoted(label: str) -> str:
    """Return a label in quotation marks: a scheme may be called none."""
    return f"“{label}”"


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return names as a list in a sentence; of a long one the first, and how many others there are."""
    if len(names) > MAX_NAMED + 1:
        names = [*names[:MAX_NAMED], f"{len(names) - MAX_NAMED} others"]
    if not names:
        return "none"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
