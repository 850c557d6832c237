"""Kazemnejad et al. 2023: distances between the attention patterns of models."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

PAIRS, KEYS = 2000, 16
# the smaller, the more of a row is on a few keys
CONCENTRATION = 0.2
EXAMPLE = ((0.97, 0.01, 0.01, 0.01), (0.01, 0.97, 0.01, 0.01))

Rows = Float[Tensor, "rows keys"]


class Kazemnejad(Replication):
    """Distance of attention patterns: the repository computes another divergence than the paper's.

        JSD(p, q) = KL(p | m) / 2 + KL(q | m) / 2,    repository: KL(m | p) / 2 + KL(m | q) / 2,    m = (p + q) / 2

    The loss for KL in PyTorch takes the log of its first argument, which is the second of the divergence. The paper's
    is at most ln 2, the repository's has no bound.

    Source: Kazemnejad et al. 2023, https://arxiv.org/abs/2305.19466, section 5.2, and its repository.
    Departs: that models without positions read longer inputs is a claim about training and is not measured here.
    """

    paper = Paper(
        authors="Kazemnejad et al.", year=2023, arxiv="2305.19466",
        title="The Impact of Positional Encoding on Length Generalization in Transformers",
    )  # fmt: skip
    order = 2
    claims = (
        Claim(
            name="divergence",
            text="The distance of two attention patterns, as the repository computes it, is their Jensen-Shannon "
            "divergence.",
            tested="identity",
            quantity=f"mean difference from it [nats], {PAIRS} pairs of random patterns over {KEYS} keys",
            side="equal",
            expected=0.0,
            size=0.01,
            null="the mean divergence itself: a distance that is always 0",
            printed="distances up to 1.48; ln 2 = 0.69 is the largest divergence",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        p, q = (torch.tensor([row], dtype=torch.float64) for row in EXAMPLE)
        one, other = torch.eye(2, dtype=torch.float64).split(1)
        equal = random_rows(seed)
        return (
            Control(name="divergence of two patterns without a common key", expected=math.log(2),
                    got=float(jensen_shannon(one, other)), tolerance=1e-12),
            Control(name="divergence of equal patterns", expected=0.0,
                    got=float(jensen_shannon(equal, equal).abs().max()), tolerance=1e-12),
            Control(name="divergence of (.97, .01, .01, .01) and (.01, .97, .01, .01)",
                    expected=0.97 * math.log(97 / 49) - 0.01 * math.log(49), got=float(jensen_shannon(p, q)),
                    tolerance=1e-12),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        p, q = random_rows(subject.seed), random_rows(subject.seed + 1)
        true, theirs = jensen_shannon(p, q), reversed_divergence(p, q)
        gap, half = float((theirs - true).mean()), 1.96 * float((theirs - true).std()) / PAIRS**0.5
        return {
            "divergence": Estimate(
                name="difference", value=gap, low=gap - half, high=gap + half, null=-float(true.mean()), unit="nats"
            ),
        }


def jensen_shannon(p: Rows, q: Rows) -> Float[Tensor, "rows"]:
    """Jensen-Shannon divergence of each pair of rows [nats]."""
    m = (p + q) / 2
    return (_relative_entropy(p, m) + _relative_entropy(q, m)) / 2


def reversed_divergence(p: Rows, q: Rows) -> Float[Tensor, "rows"]:
    """The repository's distance of each pair of rows [nats]: both divergences with their arguments exchanged."""
    m = (p + q) / 2
    return (_relative_entropy(m, p) + _relative_entropy(m, q)) / 2


def random_rows(seed: int) -> Rows:
    """Random attention patterns: a softmax of scores of varied spread, never exactly 0."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(PAIRS, KEYS, generator=generator, dtype=torch.float64)
    return (scores * torch.rand(PAIRS, 1, generator=generator, dtype=torch.float64) / CONCENTRATION).softmax(-1)


def _relative_entropy(p: Rows, q: Rows) -> Float[Tensor, "rows"]:
    """KL(p | q), where 0 log 0 is 0."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1)
