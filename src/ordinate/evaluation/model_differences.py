"""Paired differences between models on the same documents, corrected for multiple testing."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import torch

from ordinate.evaluation.comparison import holm
from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.reading import Reading, by_document
from ordinate.evaluation.result import ModelDifference, PositionDifference
from ordinate.evaluation.side_by_side import corrected
from ordinate.evaluation.statistics import RatioEstimate, estimate_change, estimate_difference, nats_to_bits
from ordinate.evaluation.text_sample import TextSample


def differences(readings: Sequence[Reading], sample: TextSample) -> tuple[ModelDifference, ...]:
    """Paired differences of all models at all lengths, corrected together."""
    found: list[tuple[str, str, int, int, RatioEstimate]] = []
    for one, other in combinations(readings, 2):
        if not comparable(one, other):
            continue
        for times, length in one.lengths:
            same = [own for own in other.lengths if (times and own[0] == times) or (not times and own[1] == length)]
            if same:
                made = _difference((one, length), (other, same[0][1]), sample)
                found.append((one.subject.name, other.subject.name, times, length, made))
    return corrected(found)


def position_differences(readings: Sequence[Reading], sample: TextSample) -> tuple[PositionDifference, ...]:
    """Paired differences by position at the longest common length, corrected together (Holm).

    Positions are grouped by powers of two. Models with other tokens have no positions in common.
    """
    found: list[tuple[str, str, int, int, RatioEstimate]] = []
    for one, other in combinations(readings, 2):
        lengths = one.nats.keys() & other.nats.keys()
        if not lengths or not comparable(one, other) or not _same_tokens(one, other):
            continue
        length = max(lengths)
        place = torch.arange(one.asked.shape[1]) % length
        for start, stop in _octaves(length):
            asked = one.asked & (place >= start) & (place < stop)
            sizes = by_document(sample, one.sizes * asked)
            # a document without a token there says nothing about it
            there = sizes > 0
            if there.sum() < 2:
                continue
            amounts = [
                nats_to_bits(by_document(sample, own.nats[length] * asked))[None, there] for own in (one, other)
            ]
            made = estimate_difference(amounts[0], amounts[1], sizes[there])
            found.append((one.subject.name, other.subject.name, start, stop, made))
    adjusted = holm([estimate.p for *_, estimate in found])
    return tuple(
        PositionDifference(one, other, start, stop, made.value, made.interval, made.p, p)
        for (one, other, start, stop, made), p in zip(found, adjusted, strict=True)
    )


def _octaves(length: int) -> list[tuple[int, int]]:
    """Return the positions from 0 in groups: 0, 1, 2 to 3, 4 to 7, ..."""
    edges = [0, *(2**power for power in range(length.bit_length()) if 2**power < length), length]
    return list(pairwise(edges))


def comparable(one: Reading, other: Reading) -> bool:
    """Whether two models are measured in the same unit: the same tokens, or bytes."""
    return one.quantity is other.quantity and (one.quantity is BITS_PER_BYTE or _same_tokens(one, other))


def _same_tokens(one: Reading, other: Reading) -> bool:
    return torch.equal(one.pieces.tokens, other.pieces.tokens) and torch.equal(one.asked, other.asked)


def _difference(one: tuple[Reading, int], other: tuple[Reading, int], sample: TextSample) -> RatioEstimate:
    """The value of the first minus that of the second, on the same documents."""
    (first, length), (second, second_length) = one, other
    if _same_tokens(first, second):
        amounts = [nats_to_bits(by_document(sample, own.nats[size]))[None] for own, size in (one, other)]
        return estimate_difference(amounts[0], amounts[1], by_document(sample, first.sizes * first.asked))
    # other tokenizers: both predict the same bytes, to within one token
    sides = []
    for own, size in ((second, second_length), (first, length)):
        nats = by_document(sample, own.nats[size])
        sides.append((nats_to_bits(nats)[None], by_document(sample, own.sizes * own.asked)))
    return estimate_change(sides[0], sides[1])
