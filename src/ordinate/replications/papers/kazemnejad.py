"""Kazemnejad et al. 2023: longer inputs than in training, and distances between the attention patterns of models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids
from ordinate.data.task import Task
from ordinate.models.shape import Shape
from ordinate.replications.estimates import over_pairs
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun
from ordinate.replications.varied_lengths import (
    LONGER,
    SYMBOLS,
    TRAINED,
    VariedLengths,
    accuracy,
    answered,
    ascending,
    strings,
)

PAIRS, KEYS = 2000, 16
# the smaller, the more of a row is on a few keys
CONCENTRATION = 0.2
EXAMPLE = ((0.97, 0.01, 0.01, 0.01), (0.01, 0.97, 0.01, 0.01))
STEPS, BATCH, LEARNING_RATE = 400, 32, 5e-3
# of strings as long as in training
LEAST_ACCURACY = 0.95
SHAPE = Shape(
    vocabulary=SYMBOLS + 1, width=64, layers=2, heads=4, max_length=2 * LONGER, tie_embeddings=False,
    embedding_scale=0.02,
)  # fmt: skip
SCHEMES = {
    "none": "none",
    "sinusoidal": "sinusoidal",
    "rope": "rope",
    # a quarter of the 16 channels of a head, as in the paper's repository
    "rope of a quarter": "rope:rotary_dim=4",
    "alibi": "alibi",
    "t5": "t5",
}

Rows = Float[Tensor, "rows keys"]


def _longer(name: str, other: str, printed: str) -> Claim:
    """Claim that models without positions sort longer strings better than others do."""
    return Claim(
        name=f"against {name}",
        text=f"Without positions models sort longer strings than in training better than with {other}.",
        tested="sign",
        quantity=f"accuracy on {LONGER} symbols, no positions minus {other}",
        side="above",
        size=0.02,
        null="0: both as well",
        printed=f"mean reciprocal rank over the paper's tasks: 0.69 against {printed}",
        checked=False,
        needs="training",
    )


class Kazemnejad(TrainedReplication):
    """Longer inputs than in training; and the distance of attention patterns, which the repository has reversed.

        accuracy:    share of symbols given rightly after the true ones before, strings twice as long as in training
        JSD(p, q) =  KL(p | m) / 2 + KL(q | m) / 2,    repository: KL(m | p) / 2 + KL(m | q) / 2,    m = (p + q) / 2

    The loss for KL in PyTorch takes the log of its first argument, which is the second of the divergence. The paper's
    is at most ln 2, the repository's has no bound. The repository's RoPE turns a quarter of the channels.

    Source: Kazemnejad et al. 2023, https://arxiv.org/abs/2305.19466, sections 4 and 5.2, and its repository.
    Departs: one of its tasks, sorting; strings of 10 symbols and 20, width 64, 2 layers, 400 steps.
    """

    paper = Paper(
        authors="Kazemnejad et al.", year=2023, arxiv="2305.19466",
        title="The Impact of Positional Encoding on Length Generalization in Transformers",
    )  # fmt: skip
    order = 2
    arms = tuple(
        Arm(name, replace(SHAPE, scheme=scheme), STEPS, BATCH, LEARNING_RATE) for name, scheme in SCHEMES.items()
    )
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
        _longer("sinusoidal", "sinusoidal positions", "0.22"),
        _longer("rope", "RoPE", "0.33"),
        _longer("rope of a quarter", "RoPE of a quarter of the channels", "0.33"),
        _longer("alibi", "ALiBi", "0.50"),
        _longer("t5", "T5's bias", "0.55"),
    )

    def task(self, arm: Arm) -> Task:
        return VariedLengths(ascending)

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        return {name: accuracy(model, length, ascending) for name, length in
                {"trained": TRAINED, "longer": LONGER}.items()}  # fmt: skip

    def has_learnt(self, run: TrainedRun) -> bool:
        return run.numbers["trained"] > LEAST_ACCURACY

    def controls(self, seed: int) -> Sequence[Control]:
        p, q = (torch.tensor([row], dtype=torch.float64) for row in EXAMPLE)
        one, other = torch.eye(2, dtype=torch.float64).split(1)
        equal = random_rows(seed)
        asked = strings(torch.Generator().manual_seed(seed), PAIRS, LONGER, ascending)
        return (
            Control(name="divergence of two patterns without a common key", expected=math.log(2),
                    got=float(jensen_shannon(one, other)), tolerance=1e-12),
            Control(name="divergence of equal patterns", expected=0.0,
                    got=float(jensen_shannon(equal, equal).abs().max()), tolerance=1e-12),
            Control(name="divergence of (.97, .01, .01, .01) and (.01, .97, .01, .01)",
                    expected=0.97 * math.log(97 / 49) - 0.01 * math.log(49), got=float(jensen_shannon(p, q)),
                    tolerance=1e-12),
            Control(name="accuracy of giving the next symbol id", expected=LONGER / SYMBOLS,
                    got=answered(successors(asked.inputs), asked.targets), tolerance=0.05),
            Control(name="accuracy of the smallest that is left", expected=1.0,
                    got=answered(smallest_left(asked.inputs), asked.targets), tolerance=0.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        p, q = random_rows(subject.seed), random_rows(subject.seed + 1)
        true, theirs = jensen_shannon(p, q), reversed_divergence(p, q)
        gap, half = float((theirs - true).mean()), 1.96 * float((theirs - true).std()) / PAIRS**0.5
        found = {
            "divergence": Estimate(
                name="difference", value=gap, low=gap - half, high=gap + half, null=-float(true.mean()), unit="nats"
            ),
        }
        runs = subject.runs
        if runs is None:
            return found
        own, *others = (runs.numbers(name, "longer") for name in SCHEMES)
        return found | {
            f"against {name}": over_pairs("difference", own - other, unit="")
            for name, other in zip(list(SCHEMES)[1:], others, strict=True)
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


def successors(ids: Ids) -> Ids:
    """Return for each symbol the next id, and for the separator the first: right where strings have no gaps."""
    return (ids + 1) % (SYMBOLS + 1)


def smallest_left(ids: Ids) -> Ids:
    """Return the smallest symbol of the string above the one at each place; after the separator, the smallest."""
    given = ids[:, : ids.shape[1] // 2]
    above = given[:, None] > torch.where(ids == SYMBOLS, -1, ids)[..., None]
    return torch.where(above, given[:, None], SYMBOLS).amin(-1)
