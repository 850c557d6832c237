"""Gelberg et al. 2025: position encodings can be taken away from a trained model, which then reads longer texts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import nn

from ordinate.attention._attend import attend
from ordinate.core.finding import Estimate
from ordinate.core.geometry import Geometry
from ordinate.data.task import Task
from ordinate.data.tasks.text import Text
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.replications.estimates import over_pairs
from ordinate.replications.longer_texts import TRAINED, score_controls, scores, split_name
from ordinate.replications.prose import VOCABULARY, heldout_texts, train_bytes
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun
from ordinate.replications.varied_lengths import LONGER, SYMBOLS, VariedLengths, accuracy, ascending
from ordinate.replications.varied_lengths import TRAINED as SHORT
from ordinate.schemes._scheme import Scheme
from ordinate.schemes.none import NoPosition
from ordinate.schemes.rope import Rope

TEXTS, READ, HELDOUT = 32, 256, 513
# a fifth of all steps is trained without positions; sorting takes fewer
STEPS, SORTING_STEPS, BATCH, LEARNING_RATE = 800, 500, 16, 3e-3
# below the entropy of a byte given the one before it, 2.56 nats in this text; below that of single bytes, 3.2 nats,
# for models without positions, whose loss is a claim
MOST_LOSS, MOST_LOSS_WITHOUT = 2.5, 2.9
LEAST_ACCURACY = 0.95
SHAPE = Shape(
    vocabulary=VOCABULARY, width=64, layers=2, heads=4, scheme="rope", embedding_std=0.02, embedding_scale=0.16
)
SORTING = Shape(
    vocabulary=SYMBOLS + 1, width=64, layers=2, heads=4, scheme="rope", tie_embeddings=False, embedding_scale=0.02
)
# tokens and channels of the constructed head
TOKENS, WIDTH = 32, 16


def _trained_on(name: str, shape: Shape, steps: int, batch: int, learning_rate: float) -> tuple[Arm, Arm]:
    """Arms that go on from one model with RoPE: with it, and without."""
    start = Arm(name, shape, steps - steps // 5, batch, learning_rate)
    arms = (
        Arm(f"{name}, {end}", replace(shape, scheme=scheme), steps // 5, batch, learning_rate, start=start)
        for end, scheme in {"kept": "rope", "dropped": "none"}.items()
    )
    return next(arms), next(arms)


class Gelberg(TrainedReplication):
    """DroPE: train with RoPE, take it away, train on for a short time, and read texts longer than before.

        loss:      of held-out texts cut into pieces of n tokens [nats]
        accuracy:  share of symbols sorted rightly, strings twice as long as in training
        gradient:  of the mean distance that the last query attends to, in its W_q and W_k, all tokens equal

    Models with RoPE that are trained on as long, and models without positions from the start, have as many steps.

    Source: Gelberg et al. 2025, Extending the Context of Pretrained LLMs by Dropping Their Positional Embeddings,
        https://arxiv.org/abs/2512.12167.
    Departs: bytes of Python's documentation and sorting, 64 tokens and 10 symbols, width 64, 2 layers; a fifth of 800
        and 500 steps is without positions. Scores have no temperature for longer inputs. Sorting stands in for its
        retrieval, which models of this size do not learn in minutes.
    """

    paper = Paper(
        authors="Gelberg et al.", year=2025, arxiv="2512.12167",
        title="Extending the Context of Pretrained LLMs by Dropping Their Positional Embeddings",
    )  # fmt: skip
    order = 25
    arms = (
        *_trained_on("text", SHAPE, STEPS, BATCH, LEARNING_RATE),
        Arm("text, none", replace(SHAPE, scheme="none"), STEPS, BATCH, LEARNING_RATE),
        *_trained_on("sorting", SORTING, SORTING_STEPS, 2 * BATCH, 5e-3),
    )
    claims = (
        Claim(
            name="no gradient",
            text="Without positions a head that sees equal tokens does not learn to prefer near ones; with RoPE it "
            "does.",
            tested="identity",
            quantity="gradient of the mean attended distance in W_q and W_k [tokens], random head, equal tokens",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="the same with RoPE",
        ),
        Claim(
            name="no cost",
            text="After a short training without positions the loss at the trained length is what it was.",
            tested="number",
            quantity=f"loss at {TRAINED} tokens [nats], dropped minus kept, equal steps",
            side="equal",
            expected=0.0,
            size=0.05,
            null="the same without that training",
            needs="training",
        ),
        Claim(
            name="from a trained model",
            text="Taking positions away from a trained model is better than training without them from the start.",
            tested="sign",
            quantity=f"loss at {TRAINED} tokens [nats], dropped minus never with positions, equal steps",
            side="below",
            size=0.01,
            null="0: the same",
            needs="training",
        ),
        Claim(
            name="longer texts",
            text="A model whose RoPE was taken away reads texts longer than those of training with less loss.",
            tested="sign",
            quantity=f"loss added by reading {READ} tokens in place of {TRAINED} [nats], dropped minus kept",
            side="below",
            size=0.05,
            null="0: both lose alike",
            needs="training",
        ),
        Claim(
            name="longer strings",
            text="It sorts strings that are longer than those of training, where the one that keeps RoPE fails.",
            tested="sign",
            quantity=f"accuracy on {LONGER} symbols, dropped minus kept",
            side="above",
            size=0.02,
            null="0: as well",
            printed="28 to 42 % against 0 to 22 %, retrieval at twice the length",
            checked=False,
            needs="training",
        ),
    )

    def task(self, arm: Arm) -> Task:
        if arm.shape.vocabulary == SORTING.vocabulary:
            return VariedLengths(ascending)
        return Text(tokens=train_bytes(), vocabulary=VOCABULARY, length=TRAINED)

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        model = cast(Decoder, model)
        if model.shape.vocabulary == SORTING.vocabulary:
            return {name: accuracy(model, length, ascending) for name, length in
                    {"trained": SHORT, "longer": LONGER}.items()}  # fmt: skip
        texts = heldout_texts(TEXTS, HELDOUT)
        blind = scores(without_positions(model), texts)
        return {**scores(model, texts), "without positions": blind[split_name(TRAINED)]}

    def has_learnt(self, run: TrainedRun) -> bool:
        if run.arm.startswith("sorting"):
            return run.numbers["trained"] > LEAST_ACCURACY
        most = MOST_LOSS if run.arm == "text, kept" else MOST_LOSS_WITHOUT
        return run.numbers[split_name(TRAINED)] < most

    def controls(self, seed: int) -> Sequence[Control]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            plain, rotary = (Decoder(replace(SHAPE, scheme=scheme)).eval() for scheme in ("none", "rope"))
        ids = torch.randint(VOCABULARY, (2, TRAINED), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            same = float((without_positions(plain)(ids) - plain(ids)).abs().max())
            rotary.load_state_dict(plain.state_dict())
            blind = float((without_positions(rotary)(ids) - plain(ids)).abs().max())
        return (
            *score_controls(seed),
            Control(name="change of a model without positions by taking them away", expected=0.0, got=same,
                    tolerance=0.0),
            Control(name="difference of a model whose RoPE is taken away from one of the same weights without",
                    expected=0.0, got=blind, tolerance=0.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        flat, rotary = (distance_gradient(scheme, subject.seed) for scheme in (NoPosition(), Rope(head_width=WIDTH)))
        found = {"no gradient": Estimate(name="gradient", value=flat, null=rotary, unit="tokens")}
        runs = subject.runs
        if runs is None:
            return found
        near, long = split_name(TRAINED), split_name(READ)
        kept, dropped, never = (runs.numbers(f"text, {end}", near) for end in ("kept", "dropped", "none"))
        added = runs.numbers("text, dropped", long) - dropped - (runs.numbers("text, kept", long) - kept)
        sorted_longer = runs.numbers("sorting, dropped", "longer") - runs.numbers("sorting, kept", "longer")
        before = runs.numbers("text, kept", "without positions") - kept
        return found | {
            "no cost": over_pairs("difference", dropped - kept, before),
            "from a trained model": over_pairs("difference", dropped - never),
            "longer texts": over_pairs("difference", added),
            "longer strings": over_pairs("difference", sorted_longer, unit=""),
        }


def without_positions(model: Decoder) -> Decoder:
    """Return a model with the same weights and no position encoding.

    Raises:
        RuntimeError: its scheme has parameters.
    """
    blind = Decoder(replace(model.shape, scheme="none")).eval()
    blind.load_state_dict(model.state_dict())
    return blind


def distance_gradient(scheme: Scheme, seed: int) -> float:
    """Return the norm of the gradient of the mean distance that the last query attends to, all tokens equal [tokens].

    Args:
        scheme: the positions.
        seed: of the weights and the token.
    """
    generator = torch.Generator().manual_seed(seed)
    token, queries, keys = torch.randn(3, WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH**0.5
    weights = queries.requires_grad_(), keys.requires_grad_()
    q, k = ((token[0] @ weight).expand(1, 1, TOKENS, WIDTH) for weight in weights)
    distance = torch.arange(TOKENS - 1, -1, -1, dtype=torch.float64)[None, None, :, None]
    where = Geometry.causal(TOKENS)
    mean = attend(q, k, distance, scheme.double().at(where))[0, 0, -1, 0]
    gradients = torch.autograd.grad(mean, weights)
    return float(torch.stack([gradient.norm() for gradient in gradients]).norm())
