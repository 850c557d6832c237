"""Li et al. 2024: FIRE represents other relative biases, and reads longer texts with less loss."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.geometry import Geometry
from ordinate.data.tasks.text import Text
from ordinate.models.shape import Shape
from ordinate.replications.estimates import over_pairs
from ordinate.replications.longer_texts import LONGEST, TRAINED, score_controls, scores, split_name
from ordinate.replications.prose import VOCABULARY, heldout_texts, train_bytes
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun
from ordinate.schemes.alibi import Alibi
from ordinate.schemes.fire import EPS, Fire
from ordinate.schemes.kerple import Kerple
from ordinate.schemes.t5 import T5

# tokens of the constructed biases
LENGTH = 512
TEXTS, STEPS, BATCH, LEARNING_RATE = 32, 800, 16, 3e-3
# below the entropy of a byte given the one before it, 2.56 nats in this text
MOST_LOSS = 2.5
# the paper's initial L is a quarter of the trained length
SCHEMES = {"fire": f"fire:threshold={TRAINED // 4}", "alibi": "alibi", "t5": "t5", "rope": "rope"}
SHAPE = Shape(
    vocabulary=VOCABULARY, width=64, layers=2, heads=4, max_length=LONGEST, embedding_std=0.02, embedding_scale=0.16
)

Biased = Fire | Alibi | T5 | Kerple
Curve = Float[Tensor, "distances"]


def _represented(name: str, other: str) -> Claim:
    return Claim(
        name=name,
        text=f"FIRE can represent {other}: weights of its MLP exist that give the same bias.",
        tested="identity",
        quantity=f"largest difference of the two biases, relative to the largest bias, distances 0 to {LENGTH - 1}, "
        "constructed weights",
        side="equal",
        expected=0.0,
        size=1e-5,
        null="the same with initial weights",
    )


def _longer(name: str, other: str, size: float) -> Claim:
    return Claim(
        name=name,
        text=f"Models with FIRE read texts longer than those of training with less loss than those with {other}.",
        tested="sign",
        quantity=f"loss added by reading {LONGEST} tokens in place of {TRAINED} [nats], FIRE minus {other}",
        side="below",
        size=size,
        null="0: both lose alike",
        needs="training",
    )


class Li(TrainedReplication):
    """FIRE: a bias by an MLP of the distance, transformed by a logarithm and divided by that of the query's position.

        piecewise linear:  f(x) = y_0 + sum over n of (slope_n - slope_(n-1)) relu(x - x_n) through points (x_n, y_n)

    An MLP with one hidden layer of ReLU is such a function, so it gives any bias at whole distances, as long as the
    divisor does not change with the query: below the threshold L, here the length.

    Source: Li et al. 2024, https://arxiv.org/abs/2310.04418, theorem 4.1 and section 5.1.
    Departs: bytes of Python's documentation, 64 tokens, width 64, 2 layers, 800 steps; read to 512 tokens.
    """

    paper = Paper(
        authors="Li et al.", year=2024, arxiv="2310.04418",
        title="Functional Interpolation for Relative Positions Improves Long Context Transformers",
    )  # fmt: skip
    order = 29
    arms = tuple(
        Arm(name, replace(SHAPE, scheme=scheme), STEPS, BATCH, LEARNING_RATE) for name, scheme in SCHEMES.items()
    )
    claims = (
        _represented("represents alibi", "ALiBi"),
        _represented("represents t5", "T5's bias"),
        _represented("represents kerple", "the logarithmic bias of KERPLE"),
        _longer("against alibi", "ALiBi", 0.02),
        _longer("against t5", "T5's bias", 0.02),
        _longer("against rotary", "RoPE", 0.1),
    )

    def task(self, arm: Arm) -> Text:
        return Text(tokens=train_bytes(), vocabulary=VOCABULARY, length=TRAINED)

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        return scores(model, heldout_texts(TEXTS, LONGEST + 1))

    def has_learnt(self, run: TrainedRun) -> bool:
        return run.numbers[split_name(TRAINED)] < MOST_LOSS

    def controls(self, seed: int) -> Sequence[Control]:
        drawn = torch.randn(LENGTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        given = curve(interpolating(dict(enumerate(drawn.tolist()))))
        return (
            *score_controls(seed),
            Control(name="difference of a constructed bias and the random numbers it is to give", expected=0.0,
                    got=relative_difference(given, drawn), tolerance=1e-5),
            Control(name="difference of a bias and one of twice its size", expected=1.0,
                    got=relative_difference(2 * drawn, drawn), tolerance=1e-12),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(subject.seed)
            others = {"alibi": Alibi(heads=1), "t5": T5(heads=1), "kerple": Kerple(heads=1)}
            fresh = Fire(heads=1, threshold=LENGTH).double()
            nn.init.normal_(others["t5"].table)
        found = {
            f"represents {name}": Estimate(
                name="difference", value=relative_difference(curve(represent(other)), curve(other)),
                null=relative_difference(curve(fresh), curve(other)),
            )
            for name, other in others.items()
        }  # fmt: skip
        runs = subject.runs
        if runs is None:
            return found
        near, long = split_name(TRAINED), split_name(LONGEST)
        own, *rest = (runs.numbers(name, long) - runs.numbers(name, near) for name in SCHEMES)
        names = ("against alibi", "against t5", "against rotary")
        return found | {name: over_pairs("difference", own - one) for name, one in zip(names, rest, strict=True)}


def curve(scheme: Biased) -> Curve:
    """Return the bias of one head at each distance of the last query, 0 first."""
    with torch.no_grad():
        return scheme.double().bias(Geometry.causal(LENGTH))[0, 0, -1].flip(0)


def represent(other: Biased) -> Fire:
    """Return FIRE with weights that give the bias of another scheme at all distances.

    The logarithmic bias is linear in the transformed distance if c is its own: two points are enough.
    """
    values = curve(other)
    if isinstance(other, Kerple):
        return interpolating({0: float(values[0]), LENGTH - 1: float(values[-1])}, float(other.a.detach()))
    return interpolating(dict(enumerate(values.tolist())))


def interpolating(points: Mapping[int, float], c: float = 0.1) -> Fire:
    """Return FIRE whose bias goes through points.

    Args:
        points: the bias at some distances, ascending, 0 the first.
        c: how soon the logarithm flattens [1 / token].
    """
    fire = Fire(heads=1, hidden=len(points) - 1, threshold=LENGTH).double()
    distances, values = (torch.tensor(list(x), dtype=torch.float64) for x in (points, points.values()))
    # as FIRE itself divides
    knots = torch.log1p(c * distances) / (math.log1p(c * LENGTH) + EPS)
    slopes = values.diff() / knots.diff()
    with torch.no_grad():
        fire.c.fill_(c)
        fire.inner.weight.fill_(1.0)
        fire.inner.bias.copy_(-knots[:-1])
        fire.outer.weight.copy_(torch.cat([slopes[:1], slopes.diff()])[None])
        fire.outer.bias.fill_(values[0])
    return fire


def relative_difference(came: Curve, expected: Curve) -> float:
    """Return the largest difference of two curves, relative to the largest expected value."""
    return float((came - expected).abs().max() / expected.abs().max())
