"""Veličković et al. 2024: softmax must disperse as the input grows."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

SPAN = 5.0
LENGTHS = tuple(2**power for power in range(14, 21))
DRAWS = 200


class Velickovic(Replication):
    """Softmax disperses: with logits in a bounded span, every weight falls as 1 / n.

        e^-s / n <= weight <= e^s / n    for n logits in a span s

    Source: Veličković et al. 2024, https://arxiv.org/abs/2410.01104, lemma 2.1.
    """

    paper = Paper(
        authors="Veličković et al.", year=2024, title="Softmax is not Enough (for Sharp Size Generalisation)",
        arxiv="2410.01104",
    )  # fmt: skip
    order = 16
    claims = (
        Claim(
            name="bound",
            text="With logits in a bounded span s, weights lie between e^-s / n and e^s / n.",
            tested="identity",
            quantity=f"share of weights outside the bound, of {DRAWS} sets of random logits of span {SPAN:g}",
            side="equal",
            expected=0.0,
            size=0.0,
            null="the share with the same logits, their span doubled",
        ),
        Claim(
            name="dispersion",
            text="The largest weight falls to zero as 1 / n.",
            tested="number",
            quantity=f"slope of the log of the largest weight over log n, one logit {SPAN:g} above the others, n "
            f"from {LENGTHS[0]:,} to {LENGTHS[-1]:,}",
            side="equal",
            expected=-1.0,
            size=0.05,
            null="0: the same with a gap that grows by log n",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        exact = math.exp(SPAN) / (math.exp(SPAN) + 15)
        return (
            Control(name=f"largest weight of 16, one logit {SPAN:g} above the others", expected=exact,
                    got=_largest(16, SPAN), tolerance=1e-12),
            Control(name="slope of uniform weights", expected=-1.0, got=_slope(0.0, 0.0), tolerance=1e-9),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        return {
            "bound": Estimate(
                name="share outside", value=outside_bound(subject.seed, 1.0), null=outside_bound(subject.seed, 2.0)
            ),
            "dispersion": Estimate(name="slope", value=_slope(SPAN, 0.0), null=_slope(SPAN, 1.0)),
        }


def outside_bound(seed: int, factor: float) -> float:
    """Share of softmax weights outside [e^-s / n, e^s / n] for random logits whose span is `factor` s."""
    generator, outside, count = torch.Generator().manual_seed(seed), 0, 0
    for turn, n in enumerate(torch.randint(2, 2048, (DRAWS,), generator=generator).tolist()):
        # every second set has one logit above all others, which comes closest to the bound
        logits = torch.rand(n, generator=generator, dtype=torch.float64).pow(4)
        logits = logits if turn % 2 else (logits == logits.max()).double()
        logits = (logits - logits.min()) / (logits.max() - logits.min()) * SPAN * factor
        scaled = logits.softmax(0) * n
        # one part in 1e12 is rounding
        outside += int(_beyond(scaled, math.exp(SPAN) * (1 + 1e-12)))
        count += n
    return outside / count


def _beyond(scaled: Tensor, most: float) -> Tensor:
    return ((scaled > most) | (scaled < 1 / most)).sum()


def _largest(n: int, gap: float) -> float:
    logits = torch.zeros(n, dtype=torch.float64)
    logits[0] = gap
    return float(logits.softmax(0).max())


def _slope(gap: float, growth: float) -> float:
    """Slope of log(largest weight) over log n, for a gap that grows by `growth` times log n."""
    weights = [_largest(n, gap + growth * math.log(n)) for n in LENGTHS]
    return float(np.polyfit(np.log(LENGTHS), np.log(weights), 1)[0])
