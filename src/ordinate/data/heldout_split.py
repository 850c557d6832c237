"""The held-out split of documents."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from ordinate.core.checks import need
from ordinate.core.seeds import derive_seed
from ordinate.data.corpus import Corpus, Document

IsHeldOut = Callable[[Document], bool]
# the share that studies hold out
HELD_OUT_SHARE = 0.1


def held_out_rule(sources: Iterable[tuple[str, int]], share: float) -> tuple[IsHeldOut, str]:
    """Return a predicate that selects the held-out documents, and its description.

    Whole files are held out, chosen by a hash of their names, so that no part of a held-out file is in the training
    data; two of them where one would be a single document, which gives no interval. If those are none, or more than
    half of the text, the last documents of each file that has several are held out instead, or the last file by name
    if none has.

    Args:
        sources: each file's name and its number of documents.
        share: held-out fraction, in (0, 1).

    Raises:
        ValueError: a single document cannot be split.
    """
    parts = dict(sources)
    need(0 < share < 1, "the held-out share must be between 0 and 1", f"got {share}", "0.1 is usual")
    total = sum(parts.values())
    chosen, said = _chosen_files(parts, share)
    if chosen and 2 * sum(parts[source] for source in chosen) <= total:
        return lambda document: document.source in chosen, f"{said}, by a hash of their names"
    need(
        total > 1,
        "a text needs at least two documents, one of them held out",
        f"got {total}",
        "give more text, or more files",
    )
    ends = {source: max(1, round(count * share)) for source, count in parts.items() if count > 1}
    if not ends:
        last = max(parts)
        return lambda document: document.source == last, "the last file by name"
    held = sum(ends.values())
    # a file of one document stays in training, or next to nothing would be left of a folder of such files
    return (
        lambda document: document.part >= parts[document.source] - ends.get(document.source, 0),
        f"the last {share:.0%} of each file"
        if list(ends.values()) == [round(count * share) for count in parts.values()]
        else f"the last documents of each file that has several: {held} of {total} documents",
    )


def _chosen_files(parts: Mapping[str, int], share: float) -> tuple[set[str], str]:
    """Return the files whose hash is below the share, and how many that are, in words.

    Where they are a single document, or none though no file could be divided, the first two by their hash.
    """
    order = sorted(parts, key=_place)
    chosen, two = {source for source in order if _place(source) < share}, set(order[:2])
    undivided = max(parts.values(), default=0) < 2
    too_few = sum(parts[source] for source in chosen) == 1 or (undivided and not chosen)
    if too_few and 2 * sum(parts[source] for source in two) <= sum(parts.values()):
        return two, f"2 of {len(parts)} files"
    return chosen, f"{share:.0%} of the files"


def held_out_documents(corpus: Corpus, share: float = HELD_OUT_SHARE) -> IsHeldOut:
    """Return the predicate that selects the documents of a corpus that studies hold out; of a single one, itself."""
    parts = Counter(document.source for document in corpus.documents())
    if sum(parts.values()) < 2:
        return lambda document: True
    return held_out_rule(sorted(parts.items()), share)[0]


def _place(source: str) -> float:
    return derive_seed(source) / 2**63
