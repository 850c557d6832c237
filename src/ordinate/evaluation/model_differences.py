"""Paired differences between models on the same documents, corrected for multiple testing."""

from collections.abc import Sequence
from itertools import combinations

import torch

from ordinate.evaluation.quantity import BITS_PER_BYTE
from ordinate.evaluation.reading import Reading, by_document
from ordinate.evaluation.result import ModelDifference
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
