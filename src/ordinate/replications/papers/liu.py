"""Liu et al. 2023: accuracy falls for middle documents; here the part that needs no training."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TOKENS, LAYERS, POWER = 512, 6, 4
CHOWDHURY = "https://arxiv.org/abs/2603.10123"


class Liu(Replication):
    """Lost in the middle: the U-shape of a causal decoder at initialisation, exactly.

    With uniform causal attention C, the running mean, the last row of (I/2 + C/2)^layers is the weight of each place
    in the last output. Without the skip connection, it is that of C^layers, with the density

        n C^k(n, x n) -> (-ln x)^(k - 1) / (k - 1)!

    Source: Liu et al. 2023, https://arxiv.org/abs/2307.03172; Chowdhury 2026, https://arxiv.org/abs/2603.10123.
    Departs: accuracy of retrieval is a claim about trained models and is not measured here.
    """

    paper = Paper(
        authors="Liu et al.", year=2023, title="Lost in the Middle: How Language Models Use Long Contexts",
        arxiv="2307.03172",
    )  # fmt: skip
    order = 5
    claims = (
        Claim(
            name="density",
            text="The weights of places after k causal averages have the density (-ln x)^(k-1) / (k-1)!.",
            tested="number",
            quantity=f"largest relative error of the density over the middle half, k = {POWER}, {TOKENS} tokens",
            side="equal",
            expected=0.0,
            size=0.05,
            null="the error of a uniform density",
            source=CHOWDHURY,
        ),
        Claim(
            name="primacy",
            text="A causal decoder with skip connections weighs the first places most, before any training.",
            tested="sign",
            quantity=f"mean weight of the first tenth over that of the middle tenth, {LAYERS} layers",
            side="above",
            size=1.0,
            null="1: bidirectional averaging",
            source=CHOWDHURY,
        ),
        Claim(
            name="recency",
            text="It weighs the last place more than the middle, before any training.",
            tested="sign",
            quantity=f"weight of the last place over the mean of the middle tenth, {LAYERS} layers",
            side="above",
            size=1.0,
            null="the same without skip connections",
            source=CHOWDHURY,
        ),
        Claim(
            name="skip connections",
            text="Recency is due to the skip connections: without them the last place weighs less than the middle.",
            tested="sign",
            quantity=f"weight of the last place over the mean of the middle tenth, {LAYERS} layers without skip",
            side="below",
            size=0.5,
            null="1: bidirectional averaging",
            source=CHOWDHURY,
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        last = float(place_weights(True, 1.0)[-1])
        even = place_weights(False, 0.5)
        return (
            Control(name="weight of the last place with skip connections alone", expected=1.0, got=last,
                    tolerance=1e-12),
            Control(name="first tenth over middle tenth, bidirectional", expected=1.0, got=_first(even),
                    tolerance=1e-9),
            Control(name="sum of the weights", expected=1.0, got=float(place_weights(True, 0.5).sum()),
                    tolerance=1e-12),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        whole, without = place_weights(True, 0.5), place_weights(True, 0.0)
        return {
            "density": Estimate(name="relative error", value=_density_error(place_weights(True, 0.0, POWER)),
                                null=_density_error(torch.full((TOKENS,), 1 / TOKENS, dtype=torch.float64))),
            "primacy": Estimate(name="first over middle", value=_first(whole), null=1.0),
            "recency": Estimate(name="last over middle", value=_last(whole), null=_last(without)),
            "skip connections": Estimate(name="last over middle", value=_last(without), null=1.0),
        }  # fmt: skip


def place_weights(causal: bool, skip: float, layers: int = LAYERS) -> Float[Tensor, "places"]:
    """Weight of each place in the last output: the last row of (skip I + (1 - skip) C)^layers.

    Args:
        causal: whether C is the running mean; False: the mean over all tokens.
        skip: share of the skip connection, from 0 to 1.
        layers: number of layers.
    """
    ones = torch.ones(TOKENS, TOKENS, dtype=torch.float64)
    mean = ones.tril() if causal else ones
    mean = mean / mean.sum(1, keepdim=True)
    step = skip * torch.eye(TOKENS, dtype=torch.float64) + (1 - skip) * mean
    return torch.linalg.matrix_power(step, layers)[-1]


def _first(weights: Tensor) -> float:
    return float(weights[: TOKENS // 10].mean() / _middle(weights))


def _last(weights: Tensor) -> float:
    return float(weights[-1] / _middle(weights))


def _middle(weights: Tensor) -> Tensor:
    start = TOKENS // 2 - TOKENS // 20
    return weights[start : start + TOKENS // 10].mean()


def _density_error(weights: Tensor) -> float:
    x = (torch.arange(TOKENS, dtype=torch.float64) + 0.5) / TOKENS
    density = (-x.log()) ** (POWER - 1) / math.factorial(POWER - 1)
    middle = slice(TOKENS // 4, 3 * TOKENS // 4)
    return float((weights * TOKENS / density - 1)[middle].abs().max())
