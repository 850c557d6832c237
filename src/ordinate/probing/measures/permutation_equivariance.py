"""Permutation equivariance: the error under permuted tokens, positions and mask, and the change at each depth."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.probing._adapter import ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing.measures.samples import (
    Permutation,
    Sample,
    final_residual,
    permuted_mask,
    random_permutation,
    residual_streams,
    unpermuted,
)

# texts and tokens of the exact arms: an identity needs no long text
SHORT_TEXTS, SHORT_LENGTH = 8, 48


@dataclass(frozen=True)
class Arm:
    """One arm of the experiment: what is permuted.

    Args:
        name: name in the report.
        tokens: permute tokens.
        positions: permute position ids.
        mask: permute the attention mask.
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


def exact_arm(facts: ModelInfo) -> Arm:
    """The arm that permutes every source of order information: an exact symmetry."""
    return ARMS[3] if facts.causal else ARMS[2]


def rounding_tolerance(dtype: torch.dtype) -> float:
    """Largest relative difference that counts as rounding error, after many layers and norms computed in float32."""
    return {torch.float64: 1e-5, torch.float32: 1e-3}.get(dtype, 0.1)


def equivariance_errors(
    subject: ModelAdapter, sample: Sample, seed: int
) -> tuple[dict[str, Float[ndarray, "texts"]], dict[str, str]]:
    """Equivariance error of each arm for each text, and the reasons of arms that could not be measured.

    |f(P x, P pi) - P f(x, pi)| / |f(x, pi)|,    P a random permutation of the tokens of a text
    """
    facts, found, reasons = subject.info, {}, {}
    order = random_permutation(sample, sample.length, torch.Generator().manual_seed(seed))
    plain = _read(subject, sample)
    for arm in ARMS:
        if arm.mask and not facts.causal:
            continue
        try:
            found[arm.name] = _error(subject, sample, order, arm, plain)
        except NotApplicable as reason:
            reasons[arm.name] = str(reason)
    return found, reasons


def prefix_permutation_changes(
    subject: ModelAdapter, sample: Sample, seed: int, *, positions: bool
) -> Float[ndarray, "texts layers"]:
    """Relative change of the last token's vector after each layer when the preceding tokens are permuted.

    Args:
        subject: the model.
        sample: the texts.
        seed: seed of the permutation.
        positions: permute position ids too; the mask is then the only source of order information.
    """
    fixed = torch.tensor([[sample.length - 1]]).expand(sample.count, 1)
    order = random_permutation(_but_last(sample), sample.length, torch.Generator().manual_seed(seed))
    order = torch.cat([order, fixed], 1)
    parts = []
    for rows in sample.batches(subject.info):
        before = residual_streams(subject, sample.inputs(rows))[1:]
        after = residual_streams(subject, sample.inputs(rows, order, positions=positions))[1:]
        parts.append(torch.stack([_relative(b[:, -1], a[:, -1]) for a, b in zip(before, after, strict=True)], 1))
    return torch.cat(parts).numpy()


def _but_last(sample: Sample) -> Sample:
    if sample.ids is None:
        raise NotApplicable("images have no last token under a causal mask: all patches attend to each other")
    return sample.truncated(sample.count, sample.length - 1)


def _read(subject: ModelAdapter, sample: Sample) -> Float[Tensor, "texts n width"]:
    return torch.cat([final_residual(subject, sample.inputs(rows))[1] for rows in sample.batches(subject.info)])


def _error(
    subject: ModelAdapter, sample: Sample, order: Permutation, arm: Arm, plain: Tensor
) -> Float[ndarray, "texts"]:
    visible, found = permuted_mask(subject.info, order) if arm.mask else None, []
    for rows in sample.batches(subject.info):
        given = sample.inputs(rows, order, tokens=arm.tokens, positions=arm.positions, mask=visible)
        _, stream = final_residual(subject, given)
        found.append(_relative(unpermuted(stream, order[rows]) if arm.tokens else stream, plain[rows]))
    return np.concatenate([part.numpy() for part in found])


def _relative(one: Tensor, other: Tensor) -> Float[Tensor, "texts"]:
    return (one - other).flatten(1).norm(dim=1) / other.flatten(1).norm(dim=1)
