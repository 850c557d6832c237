"""Whether a model gives the same when tokens change places: the arms of an experiment, and depth by depth."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.measures.presenting import Order, Sample, carried, last, shuffled, streams, undone
from ordinate.subject import Facts, Subject, Unfit

# sequences of the exact arms are short: an identity needs no long text
PAIRS, TOKENS = 8, 48


@dataclass(frozen=True)
class Arm:
    """What is permuted.

    Args:
        name: in words.
        tokens: the tokens.
        positions: the position of each token goes with it.
        mask: what each token saw goes with it.
    """

    name: str
    tokens: bool
    positions: bool
    mask: bool


ARMS = (
    Arm("tokens alone", True, False, False),
    Arm("positions alone", False, True, False),
    Arm("tokens and positions", True, True, False),
    Arm("tokens, positions and mask", True, True, True),
)


def fullest(facts: Facts) -> Arm:
    """The arm in which all goes along that tells a model the order."""
    return ARMS[3] if facts.causal else ARMS[2]


def rounding(dtype: torch.dtype) -> float:
    """Relative differences up to this are rounding: many layers, and norms that compute in float32 at most."""
    return {torch.float64: 1e-5, torch.float32: 1e-3}.get(dtype, 0.1)


def arms(subject: Subject, sample: Sample, seed: int) -> tuple[dict[str, Float[ndarray, "texts"]], dict[str, str]]:
    """The equivariance error of each arm for each text, and why others could not be measured.

    |f(P x, P pi) - P f(x, pi)| / |f(x, pi)|,    P a random permutation of a text's tokens
    """
    facts, found, reasons = subject.facts, {}, {}
    order = shuffled(sample, sample.length, torch.Generator().manual_seed(seed))
    plain = _read(subject, sample)
    for arm in ARMS:
        if arm.mask and not facts.causal:
            continue
        try:
            found[arm.name] = _error(subject, sample, order, arm, plain)
        except Unfit as reason:
            reasons[arm.name] = str(reason)
    return found, reasons


def prefix_swaps(subject: Subject, sample: Sample, seed: int, *, positions: bool) -> Float[ndarray, "texts layers"]:
    """How much the last token's vector changes after each layer when the tokens before it change places.

    Args:
        subject: the model.
        sample: what it reads.
        seed: decides the permutation.
        positions: whether each token takes its position with it; then only a mask can tell the order.
    """
    fixed = torch.tensor([[sample.length - 1]]).expand(sample.texts, 1)
    order = shuffled(_but_last(sample), sample.length, torch.Generator().manual_seed(seed))
    order = torch.cat([order, fixed], 1)
    parts = []
    for rows in sample.parts(subject.facts):
        before = streams(subject, sample.given(rows))[1:]
        after = streams(subject, sample.given(rows, order, positions=positions))[1:]
        parts.append(torch.stack([_relative(b[:, -1], a[:, -1]) for a, b in zip(before, after, strict=True)], 1))
    return torch.cat(parts).numpy()


def _but_last(sample: Sample) -> Sample:
    if sample.ids is None:
        raise Unfit("the last patch of an image is no more the last than any other: all see all")
    return sample.first(sample.texts, sample.length - 1)


def _read(subject: Subject, sample: Sample) -> Float[Tensor, "texts n width"]:
    return torch.cat([last(subject, sample.given(rows))[1] for rows in sample.parts(subject.facts)])


def _error(subject: Subject, sample: Sample, order: Order, arm: Arm, plain: Tensor) -> Float[ndarray, "texts"]:
    visible, found = carried(subject.facts, order) if arm.mask else None, []
    for rows in sample.parts(subject.facts):
        given = sample.given(rows, order, tokens=arm.tokens, positions=arm.positions, visible=visible)
        _, stream = last(subject, given)
        found.append(_relative(undone(stream, order[rows]) if arm.tokens else stream, plain[rows]))
    return np.concatenate([part.numpy() for part in found])


def _relative(one: Tensor, other: Tensor) -> Float[Tensor, "texts"]:
    return (one - other).flatten(1).norm(dim=1) / other.flatten(1).norm(dim=1)
