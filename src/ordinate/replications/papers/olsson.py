"""Olsson et al. 2022: induction heads form in models of two layers, together with in-context learning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids, Weights
from ordinate.data.task import Task
from ordinate.models.shape import Shape
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, ModelAdapter
from ordinate.probing._attach import attach
from ordinate.replications.estimates import over_pairs
from ordinate.replications.repeated_segments import (
    LONGEST,
    SHORTEST,
    SYMBOLS,
    TOKENS,
    Periods,
    Repeats,
    repeats,
    split_losses,
)
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun

TEXTS, HEADS, LOOKS = 64, 4, 16
STEPS, BATCH, LEARNING_RATE = 400, 32, 5e-3
# nats gained by the repetition, of the log(16) = 2.8 of guessing, in models that have learnt to copy
LEAST_GAIN = 2.0
# with a tied table, copying takes several times the steps
SHAPE = Shape(
    vocabulary=SYMBOLS, width=64, layers=2, heads=HEADS, scheme="alibi", tie_embeddings=False, embedding_scale=0.02
)


class Olsson(TrainedReplication):
    """Induction heads: attention from a token to the one that followed its earlier occurrence.

        prefix score:   attention at distance period - 1, where the token has an earlier occurrence, of the best head
        gain:           loss of the first period minus the loss after it, on new segments

    Both curves are normalised to increments that sum to one; their overlap is the sum of the smaller ones.

    Source: Olsson et al. 2022, https://arxiv.org/abs/2209.11895, arguments 1 to 4.
    Departs: decoders with feed-forward layers and ALiBi, width 64, on repeated random symbols; no text. What forms
        without repetition in the data is not asked.
    """

    paper = Paper(
        authors="Olsson et al.", year=2022, arxiv="2209.11895", title="In-context Learning and Induction Heads"
    )
    order = 17
    looks = LOOKS
    arms = tuple(
        Arm(name, replace(SHAPE, layers=layers), STEPS, BATCH, LEARNING_RATE)
        for name, layers in {"two layers": 2, "one layer": 1}.items()
    )
    claims = (
        Claim(
            name="two layers",
            text="Induction heads form in models of two layers.",
            tested="sign",
            quantity="prefix score of the best head of two layers",
            side="above",
            size=0.3,
            null="the best head of the models of one layer, trained alike",
            needs="training",
        ),
        Claim(
            name="one layer",
            text="Models of one layer form none.",
            tested="number",
            quantity="prefix score of the best head of one layer; uniform attention has 0.05",
            side="equal",
            expected=0.05,
            size=0.1,
            null="the best head of the models of two layers",
            needs="training",
        ),
        Claim(
            name="in-context learning",
            text="Models of two layers learn more in context than those of one.",
            tested="sign",
            quantity="gain of two layers minus gain of one [nats], same seed",
            side="above",
            size=1.0,
            null="0: both learn as much in context",
            needs="training",
        ),
        Claim(
            name="together",
            text="Induction heads form in the same short part of training in which the loss in context falls.",
            tested="sign",
            quantity=f"overlap of the rise of the prefix score and the rise of the gain, over {LOOKS} parts of the "
            "training",
            side="above",
            size=0.2,
            null="the overlap of the rise of the prefix score with an even rise of the gain",
            needs="training",
        ),
        Claim(
            name="ablation",
            text="Without its induction head a model learns less in context.",
            tested="sign",
            quantity="loss added after the first period [nats] by taking the best head out, minus that of the other "
            "heads of its layer, mean",
            side="above",
            size=0.1,
            null="0: as much as the other heads",
            needs="training",
        ),
    )

    def task(self, arm: Arm) -> Task:
        return Repeats()

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        rows, periods = repeats(torch.Generator().manual_seed(1), TEXTS)
        attached = attach(model)
        seen = Patterns()
        attached.forward(Inputs(ids=rows[:, :-1]), seen)
        scores = torch.stack([prefix_scores(weights, periods) for weights in seen.weights])
        layer, head = divmod(int(scores.argmax()), HEADS)
        early, late = losses(attached, rows, periods)
        added = [losses(attached, rows, periods, Without(layer, one))[1] - late for one in range(HEADS)]
        others = [nats for one, nats in enumerate(added) if one != head]
        return {
            "prefix": float(scores.max()),
            "gain": early - late,
            "ablation": added[head] - float(np.mean(others)),
        }

    def has_learnt(self, run: TrainedRun) -> bool:
        # one layer is not expected to copy: that is a claim
        return run.arm == "one layer" or run.numbers["gain"] > LEAST_GAIN

    def controls(self, seed: int) -> Sequence[Control]:
        generator = torch.Generator().manual_seed(seed)
        periods = repeats(generator, TEXTS)[1]
        middle = torch.full_like(periods, (SHORTEST + LONGEST) // 2)
        curve = np.linspace(0, 1, LOOKS)[None] ** 8
        return (
            Control(name="prefix score of a planted induction head", expected=1.0,
                    got=float(prefix_scores(planted(periods), periods)), tolerance=1e-6),
            Control(name="prefix score of a head that attends at the mean distance", expected=0.1,
                    got=float(prefix_scores(planted(middle), periods)), tolerance=0.1),
            Control(name="overlap of a curve with itself", expected=1.0, got=float(overlap(curve, curve)[0]),
                    tolerance=1e-9),
            Control(name="overlap of two jumps at different times", expected=0.0,
                    got=float(overlap(jump(3), jump(9))[0]), tolerance=1e-9),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        runs = subject.runs
        if runs is None:
            return {}
        two, one = (runs.numbers(arm, "prefix") for arm in ("two layers", "one layer"))
        gains = [runs.numbers(arm, "gain") for arm in ("two layers", "one layer")]
        prefix, gain = (runs.curve("two layers", name) for name in ("prefix", "gain"))
        even = np.broadcast_to(np.arange(gain.shape[1], dtype=float), gain.shape)
        return {
            "two layers": over_pairs("prefix score", two, one, unit=""),
            "one layer": over_pairs("prefix score", one, two, unit=""),
            "in-context learning": over_pairs("difference", gains[0] - gains[1]),
            "together": over_pairs("overlap", overlap(prefix, gain), overlap(prefix, even), unit=""),
            "ablation": over_pairs("added loss", runs.numbers("two layers", "ablation")),
        }


class Patterns(Hooks):
    """Captures the attention pattern of each layer."""

    skip_head = True

    def __init__(self) -> None:
        self.weights: list[Weights] = []

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        self.weights.append(seen.pattern.double())


class Without(Hooks):
    """Takes the output of one head out.

    Args:
        layer: its layer.
        head: its index in the layer.
    """

    def __init__(self, layer: int, head: int) -> None:
        self.layer, self.head = layer, head

    def head_output(self, layer: int, z: Tensor) -> Tensor | None:
        if layer != self.layer:
            return None
        kept = torch.ones(z.shape[1], 1, 1, dtype=z.dtype)
        kept[self.head] = 0
        return z * kept


def prefix_scores(weights: Weights, periods: Periods) -> Float[Tensor, "h"]:
    """Return the mean attention of each head to the token after the earlier occurrence."""
    queries = torch.arange(weights.shape[-1])
    keys = queries - periods[:, None] + 1
    # from the second period on
    valid = queries >= periods[:, None]
    asked = keys.clamp(min=0)[:, None, :, None].expand(-1, weights.shape[1], -1, 1)
    found = weights.gather(-1, asked)[..., 0] * valid[:, None]
    return found.sum((0, 2)) / valid.sum()


def losses(model: ModelAdapter, rows: Ids, periods: Periods, watch: Hooks | None = None) -> tuple[float, float]:
    """Return the loss of a model in the first period and after it [nats]."""
    logits = model.forward(Inputs(ids=rows[:, :-1]), watch).logits
    if logits is None:
        raise ValueError(f"losses need logits; {model.info.name} has none; give a model with an output head")
    return split_losses(logits, rows[:, 1:], periods)


def overlap(one: Float[ndarray, "seeds looks"], other: Float[ndarray, "seeds looks"]) -> Float[ndarray, "seeds"]:
    """Return how far two curves rise at the same time: 1 together, 0 at different times; falls do not count."""
    rises = [np.clip(np.diff(curve, axis=1), 0, None) for curve in (one, other)]
    shares = [rise / rise.sum(1, keepdims=True) for rise in rises]
    return np.minimum(*shares).sum(1)


def planted(periods: Periods) -> Weights:
    """Attention of a head at the distance period - 1 of each text, to the first token where that is outside."""
    queries = torch.arange(TOKENS)
    keys = (queries - periods[:, None] + 1).clamp(min=0)
    return nn.functional.one_hot(keys, TOKENS)[:, None].double()


def jump(look: int) -> Float[ndarray, "one looks"]:
    """Curve that is 0 before a look and 1 from it on."""
    return (np.arange(LOOKS) >= look)[None].astype(float)
