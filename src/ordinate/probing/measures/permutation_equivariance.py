"""Permutation equivariance: the error under permuted tokens, positions and mask, and the change at each depth."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.shapes import Tokens
from ordinate.ops.stats.bootstrap import mean_interval
from ordinate.probing._adapter import Hooks, ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing.measures.measured import attempt
from ordinate.probing.measures.perturbation_loss import relative_changes
from ordinate.probing.measures.samples import (
    Permutation,
    Sample,
    drop_prefix,
    final_residual,
    permuted_mask,
    random_permutation,
    residual_streams,
    unpermuted,
)

# texts and tokens of the exact arms: an identity needs no long text
SHORT_TEXTS, SHORT_LENGTH = 8, 48
# changes up to so many times that by rounding once in each layer are rounding errors: a layer has several operations
ROUNDINGS = 4.0


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


class RoundedAgain(Hooks):
    """Changes each number of the residual stream by a random relative error as large as that of rounding.

    Args:
        dtype: data type of the rounding.
        generator: draws the errors, between -eps and eps.
    """

    skip_head = True

    def __init__(self, dtype: torch.dtype, generator: torch.Generator) -> None:
        self.eps, self.generator = torch.finfo(dtype).eps, generator

    def residual(self, layer: int, x: Tokens) -> Tokens:
        drawn = 2 * torch.rand(x.shape, generator=self.generator, dtype=torch.float64) - 1
        return (x.double() * (1 + self.eps * drawn.to(x.device))).to(x.dtype)


@dataclass(frozen=True, eq=False)
class Equivariance:
    """How far a model is from equivariance under permutations, beside the rounding of its own data type.

    Args:
        errors: relative change of the median token of each text, by arm.
        noise: the same by rounding the residual stream once more in each layer; None: it cannot be replaced.
        exact: name of the arm that permutes every source of order.
        dtype: data type of the model.
        missing: why arms could not be measured, by name.
    """

    errors: dict[str, Float[ndarray, "texts"]]
    noise: Float[ndarray, "texts"] | None
    exact: str
    dtype: torch.dtype
    missing: dict[str, str]

    @property
    def tolerance(self) -> float:
        """Largest relative change that counts as a rounding error."""
        return rounding_tolerance(self.dtype) if self.noise is None else ROUNDINGS * float(self.noise.mean())

    def is_rounding(self, arm: str) -> bool:
        """Whether the change of an arm is no more than rounding."""
        return float(self.errors[arm].mean()) <= self.tolerance

    @property
    def ignores_order(self) -> bool:
        """Whether permuting tokens alone changes no more than permuting every source of order with them does.

        That arm is an exact symmetry, so its change is the rounding error of these very texts. Without it, or if it
        is no symmetry because there are other sources of order, rounding decides.
        """
        alone, exact = self.errors.get(ARMS[0].name), self.errors.get(self.exact)
        if alone is None:
            return False
        if exact is None or not self.is_rounding(self.exact):
            return self.is_rounding(ARMS[0].name)
        excess = mean_interval(alone - exact, 0)
        return excess.value <= 0 if excess.low is None else excess.low <= 0


def equivariance_errors(subject: ModelAdapter, sample: Sample, seed: int) -> Equivariance:
    """Equivariance error of each arm for each text, and the change by rounding alone.

        median over tokens i of  |f(P x, P pi) - P f(x, pi)|_i / |f(x, pi)|_i,    P a random permutation of tokens

    The median, since a few tokens of some models have activations thousands of times larger than all others.
    """
    facts, found, missing = subject.info, {}, {}
    order = random_permutation(sample, sample.length, torch.Generator().manual_seed(seed))
    plain = _read(subject, sample)
    for arm in ARMS:
        if arm.mask and not facts.causal:
            continue
        try:
            found[arm.name] = _error(subject, sample, order, arm, plain)
        except NotApplicable as reason:
            missing[arm.name] = str(reason)
    noise = attempt("the change by rounding alone", lambda: _rounding_changes(subject, sample, plain, seed))
    return Equivariance(found, noise.value, exact_arm(facts).name, facts.dtype, {**missing, **noise.missing})


def _rounding_changes(subject: ModelAdapter, sample: Sample, plain: Tensor, seed: int) -> Float[ndarray, "texts"]:
    watch, found = RoundedAgain(subject.info.dtype, torch.Generator().manual_seed(seed)), []
    for rows in sample.batches(subject.info):
        stream = drop_prefix(subject.info, subject.forward(sample.inputs(rows), watch).residual).double()
        found.append(relative_changes(stream, plain[rows]).median(1).values)
    return torch.cat(found).numpy()


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
        changes = [relative_changes(b[:, -1], a[:, -1]) for a, b in zip(before, after, strict=True)]
        parts.append(torch.stack(changes, 1))
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
        own = unpermuted(stream, order[rows]) if arm.tokens else stream
        found.append(relative_changes(own, plain[rows]).median(1).values)
    return np.concatenate([part.numpy() for part in found])
