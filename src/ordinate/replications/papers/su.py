"""Su et al. 2021: rotary scores decay with distance."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.ops.sinusoids import frequencies
from ordinate.ops.stats.bootstrap import percentiles, resampled_means
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

HEAD_WIDTH, THETA, FARTHEST, DRAWS = 128, 10_000.0, 4096, 4096
NEAR, FAR = (1, 17), (1024, 2048)
STEPS = 64


class Su(Replication):
    """RoPE: the bound on scores decays with distance; typical scores do not.

        S_j(D) = sum over m < j of e^(i w_m D),    bound(D) = mean over j of |S_j(D)|

    The bound limits a score by Abel's summation; it says nothing of scores below it. With independent normal queries
    and keys a score has mean 0 and standard deviation sqrt(d) at every distance, since rotations keep lengths.

    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.4.3.
    """

    paper = Paper(
        authors="Su et al.",
        year=2021,
        title="RoFormer: Enhanced Transformer with Rotary Position Embedding",
        arxiv="2104.09864",
    )
    order = 3
    claims = (
        Claim(
            name="envelope",
            text="The bound on rotary scores decays with distance.",
            tested="sign",
            quantity=f"mean bound at distances {FAR[0]} to {FAR[1] - 1} over that at {NEAR[0]} to {NEAR[1] - 1}",
            side="below",
            size=0.5,
            null="1: the same without rotation",
        ),
        Claim(
            name="monotone",
            text="The bound decays: the larger the distance, the smaller it is.",
            tested="order",
            quantity=f"share of steps from one distance to the next, up to {FARTHEST}, at which the bound falls",
            side="equal",
            expected=1.0,
            size=0.05,
            null="one half: as many steps up as down",
        ),
        Claim(
            name="typical scores",
            text="Scores decay with distance.",
            tested="sign",
            quantity=f"root mean square of scores of independent normal queries and keys at distances {FAR[0]} to "
            f"{FAR[1] - 1} over that at {NEAR[0]} to {NEAR[1] - 1}",
            side="below",
            size=0.1,
            null="1: the same without rotation",
        ),
        Claim(
            name="equal vectors",
            text="Scores decay with distance, where the key equals the query.",
            tested="sign",
            quantity=f"mean score at distances {FAR[0]} to {FAR[1] - 1} over that at {NEAR[0]} to {NEAR[1] - 1}",
            side="below",
            size=0.5,
            null="1: the same without rotation",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        rates = _rates()
        q, k = _pairs(seed, equal=True)
        # E q R q = sum over pairs of 2 cos w D
        exact = float(2 * (rates * 10).cos().sum())
        found = float(rotated_scores(q, k, rates, torch.tensor([10.0]))[:, 0].mean())
        still = bound(torch.zeros_like(rates), torch.tensor([1.0, 1000.0]))
        return (
            Control(name="mean score of equal vectors at distance 10", expected=exact, got=found, tolerance=1.0),
            Control(name="bound without rotation, at two distances", expected=1.0,
                    got=float(still[1] / still[0]), tolerance=1e-12),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        rates = _rates()
        bounds = bound(rates, torch.arange(FARTHEST + 1, dtype=torch.float64))
        falls = float((bounds.diff() < 0).double().mean())
        near, far = (torch.linspace(first, last - 1, STEPS).round().double().unique() for first, last in (NEAR, FAR))
        found = {
            "envelope": Estimate(
                name="ratio of bounds",
                value=float(bounds[slice(*FAR)].mean() / bounds[slice(*NEAR)].mean()),
                null=1.0,
            ),
            "monotone": Estimate(name="share of steps down", value=falls, null=0.5),
        }
        for name, equal in (("typical scores", False), ("equal vectors", True)):
            q, k = _pairs(subject.seed, equal)
            parts = [rotated_scores(q, k, rates, places) for places in (near, far)]
            # mean score where it has a sign, mean square where it has none
            means = [(part if equal else part.square()).mean(1) for part in parts]
            found[name] = _ratio(torch.stack(means, 1), subject.seed, 1.0 if equal else 0.5)
        return found


def bound(rates: Float[Tensor, "pairs"], distances: Float[Tensor, "distances"]) -> Float[Tensor, "distances"]:
    """Mean over j of |S_j|, the bound of the paper's equation 37 without its constant factor."""
    waves = torch.polar(torch.ones((), dtype=torch.float64), distances.double()[:, None] * rates)
    return waves.cumsum(1).abs().mean(1)


def rotated_scores(
    q: Float[Tensor, "draws d"],
    k: Float[Tensor, "draws d"],
    rates: Float[Tensor, "pairs"],
    distances: Float[Tensor, "distances"],
) -> Float[Tensor, "draws distances"]:
    """Scores q R_D k at each distance D; pairs are adjacent channels."""
    a, b = (torch.view_as_complex(x.unflatten(1, (-1, 2)).contiguous()) for x in (q, k))
    product, angles = a * b.conj(), distances.double()[None] * rates[:, None]
    return product.real @ angles.cos() - product.imag @ angles.sin()


def _ratio(values: Float[Tensor, "draws near_and_far"], seed: int, power: float) -> Estimate:
    """Ratio of two means over the same draws, far over near, with its bootstrap interval."""
    drawn = resampled_means(values.numpy(), seed)
    low, high = percentiles((drawn[:, 1] / drawn[:, 0]).clip(min=0) ** power)
    middle = values.mean(0)
    value = float(middle[1] / middle[0]) ** power
    return Estimate(name="ratio", value=value, low=float(low), high=float(high), null=1.0)


def _rates() -> Float[Tensor, "pairs"]:
    return torch.tensor(frequencies(HEAD_WIDTH, THETA, "vaswani", "paper"), dtype=torch.float64)


def _pairs(seed: int, equal: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, DRAWS, HEAD_WIDTH, generator=generator, dtype=torch.float64)
    return q, q if equal else k
