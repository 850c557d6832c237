"""Golovneva et al. 2024: contextual positions count what matters."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Ids
from ordinate.data.task import Task
from ordinate.models.shape import Shape
from ordinate.replications.estimates import over_pairs
from ordinate.replications.flip_flop import (
    IGNORED,
    SPARSE,
    SYMBOLS,
    TOKENS,
    FlipFlop,
    flip_flops,
    is_write,
    last_written,
    read_error,
)
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun
from ordinate.schemes.cope import Cope

# tokens between an x and the one before it, in the constructed texts
GAPS = (1, 4, 16, 64, 256, 1024)
# largest score of the constructed heads, and the slopes of the linear bias that are tried
LARGEST, SLOPES = 32.0, 400
TEXTS = 512
STEPS, BATCH, LEARNING_RATE = 600, 16, 3e-3
# errors of reading in training above this: a model has not learnt the task
MOST_ERROR = 0.05
SHAPE = Shape(
    vocabulary=SYMBOLS, width=64, layers=1, heads=4, max_length=TOKENS, tie_embeddings=False, embedding_scale=0.02
)

Kinds = Bool[Tensor, "n"]


class Golovneva(TrainedReplication):
    """CoPE: positions that count the tokens a gate selects, so that a head finds the last of a kind at any distance.

        weight:  of the last query on the last x of a text in which an x is followed by g other tokens, twice
        error:   share of reads of the flip-flop language with the wrong bit; training ignores 80 % of the bits

    Source: Golovneva et al. 2024, https://arxiv.org/abs/2405.18719, sections 3.2 and 5.1.
    Departs: one token for an instruction and its bit, for which one layer is enough; texts of 64 tokens, width 64,
        600 steps. The paper has no models without positions; they are the last null.
    """

    paper = Paper(
        authors="Golovneva et al.", year=2024, arxiv="2405.18719",
        title="Contextual Position Encoding: Learning to Count What's Important",
    )  # fmt: skip
    order = 23
    arms = tuple(
        Arm(scheme, replace(SHAPE, scheme=scheme), STEPS, BATCH, LEARNING_RATE)
        for scheme in ("cope", "rope", "learned", "none")
    )
    claims = (
        Claim(
            name="last of a kind",
            text="One head with contextual positions attends to the last x, however many tokens follow it.",
            tested="sign",
            quantity=f"least weight on the last x, {GAPS[0]} to {GAPS[-1]} tokens after each x, constructed head",
            side="above",
            size=0.25,
            null="a linear bias with the best slope, scores as large",
        ),
        Claim(
            name="against rotary",
            text="Models with CoPE read the last bit written, longer ago than in training, where those with RoPE "
            "fail.",
            tested="sign",
            quantity=f"error of reading with {SPARSE:.0%} ignored, CoPE minus RoPE",
            side="below",
            size=0.02,
            null="0: both fail alike",
            printed="4.9 % against 20.3 %",
            checked=False,
            needs="training",
        ),
        Claim(
            name="against absolute",
            text="Models with CoPE read it where those with learned absolute positions fail.",
            tested="sign",
            quantity=f"error of reading with {SPARSE:.0%} ignored, CoPE minus learned absolute positions",
            side="below",
            size=0.02,
            null="0: both fail alike",
            printed="4.9 % against 21.7 %",
            checked=False,
            needs="training",
        ),
        Claim(
            name="against none",
            text="That is due to contextual positions: models without positions fail.",
            tested="sign",
            quantity=f"error of reading with {SPARSE:.0%} ignored, CoPE minus no positions",
            side="below",
            size=0.02,
            null="0: both fail alike",
            needs="training",
        ),
    )

    def task(self, arm: Arm) -> Task:
        return FlipFlop()

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        texts = {
            name: flip_flops(torch.Generator().manual_seed(1), TEXTS, share)
            for name, share in {"trained": IGNORED, "sparse": SPARSE}.items()
        }
        return {name: read_error(model(rows), rows) for name, rows in texts.items()}

    def has_learnt(self, run: TrainedRun) -> bool:
        # without positions it is not expected: that is a claim
        return run.arm == "none" or run.numbers["trained"] < MOST_ERROR

    def controls(self, seed: int) -> Sequence[Control]:
        rows = flip_flops(torch.Generator().manual_seed(seed), TEXTS, SPARSE)
        told, another = (
            nn.functional.one_hot(bits, SYMBOLS).float() for bits in (last_written(rows), drawn_bits(rows, seed))
        )
        even = torch.zeros(8, dtype=torch.bool)
        even[1:3] = True
        only = flip_flops(torch.Generator().manual_seed(seed), TEXTS, 1.0)
        return (
            Control(name="error of a model that knows the last bit written", expected=0.0,
                    got=read_error(told, rows), tolerance=0.0),
            Control(name="error of a model that guesses", expected=0.5, got=read_error(another, rows),
                    tolerance=0.08),
            Control(name="weight on the last of two x among 8 tokens, without positions", expected=0.5,
                    got=linear_weight(even, 0.0), tolerance=1e-6),
            Control(name="writes in a text that ignores all bits but the first", expected=1.0,
                    got=float(is_write(only).sum(1).double().mean()), tolerance=0.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        texts = [kinds(gap) for gap in GAPS]
        slopes = torch.logspace(-4, math.log10(LARGEST), SLOPES).tolist()
        best = max(min(linear_weight(text, slope) for text in texts) for slope in slopes)
        least = min(contextual_weight(text) for text in texts)
        found = {"last of a kind": Estimate(name="weight", value=least, null=best)}
        runs = subject.runs
        if runs is None:
            return found
        own, *others = (runs.numbers(arm.name, "sparse") for arm in self.arms)
        names = ("against rotary", "against absolute", "against none")
        return found | {
            name: over_pairs("difference", own - other, unit="") for name, other in zip(names, others, strict=True)
        }


def drawn_bits(rows: Ids, seed: int) -> Ids:
    """Return a random bit for each place."""
    return torch.randint(2, rows.shape, generator=torch.Generator().manual_seed(seed + 1))


def kinds(gap: int) -> Kinds:
    """Return which tokens are x: two, each followed by `gap` others."""
    return torch.arange(2 * (gap + 1)) % (gap + 1) == 0


def contextual_weight(x: Kinds) -> float:
    """Return the weight of the last query on the last x, in one head with contextual positions.

    Queries ask for x and for the count 1 with half of the largest score each: keys of x get one, others minus one,
    and the table gives the other to the count 1. Counts are of x alone, since gates of others are nearly 0.

    Args:
        x: which tokens are x.
    """
    n, half = len(x), LARGEST / 2
    scheme = Cope(head_width=2)
    q = torch.tensor([half, 1.0], dtype=torch.float64).expand(1, 1, n, 2)
    # the gates and scores divide by the root of the head width
    k = torch.stack([torch.where(x, 1.0, -1.0), torch.zeros(n)], -1).double()[None, None] * math.sqrt(2)
    with torch.no_grad():
        scheme.double().table[1, 1] = half
        bias = scheme.content_bias(q, k, Geometry.causal(n))[0, 0, -1]
    scores = (q @ k.mT)[0, 0, -1] / math.sqrt(2) + bias
    return float(scores.softmax(-1)[x.nonzero()[-1, 0]])


def linear_weight(x: Kinds, slope: float) -> float:
    """Return the weight of the last query on the last x with scores of the same size and a linear bias.

    Args:
        x: which tokens are x.
        slope: what a token of distance takes off the score.
    """
    distance = torch.arange(len(x) - 1, -1, -1, dtype=torch.float64)
    scores = torch.where(x, LARGEST, -LARGEST) - slope * distance
    return float(scores.softmax(-1)[x.nonzero()[-1, 0]])
