"""Haviv et al. 2022: language models without positional encodings learn positions."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids
from ordinate.data.task import Task
from ordinate.models.shape import Shape
from ordinate.probing._attach import attach
from ordinate.replications.estimates import over_pairs
from ordinate.replications.random_models import attention_outputs
from ordinate.replications.repeated_segments import SYMBOLS, TOKENS, Repeats, copying_gain, repeats
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun

TEXTS, MIDDLE = 192, TOKENS / 4
STEPS, BATCH, LEARNING_RATE = 800, 32, 5e-3
# nats gained by the repetition; the models of one layer in olsson, which do not copy, gain 0.9 to 1.15
LEAST_GAIN = 1.2
# of the ridge regression, on standardised columns
PENALTY = 1e-3
SHAPE = Shape(
    vocabulary=SYMBOLS, width=64, layers=3, heads=4, scheme="none", tie_embeddings=False, embedding_scale=0.02
)


class Haviv(TrainedReplication):
    """A causal language model without positional encodings learns absolute positions.

        error:   mean |p - p^| of ridge regression of the place on the last layer's vectors and squares, new texts
        order:   loss of the last token with the tokens before it shuffled, minus the loss of the text as it is

    Always answering the middle has the error L / 4, which is the null; the paper's is guessing uniformly, L / 3.

    Source: Haviv et al. 2022, https://arxiv.org/abs/2203.16634, sections 4 and 5.
    Departs: repeated random segments of 5 to 14 symbols in place of language, width 64, 3 layers, 32 tokens, 800
        steps. The bidirectional model is the same one without its causal mask: no weights could tell places there.
    """

    paper = Paper(
        authors="Haviv et al.", year=2022, arxiv="2203.16634",
        title="Transformer Language Models without Positional Encodings Still Learn Positional Information",
    )  # fmt: skip
    order = 1
    before_training = True
    arms = (Arm("none", SHAPE, STEPS, BATCH, LEARNING_RATE),)
    claims = (
        Claim(
            name="knows positions",
            text="A causal model without positional encodings knows absolute positions.",
            tested="sign",
            quantity="error of the place [tokens] in the last layer, no positions",
            side="below",
            size=2.0,
            null=f"{MIDDLE:g}: always answering the middle",
            printed="16.5 of 1024 places at best; guessing 341, the middle 256",
            checked=False,
            needs="training",
        ),
        Claim(
            name="by training",
            text="It learns them: they are known better than before training.",
            tested="sign",
            quantity="error of the place [tokens] in the last layer, trained minus untrained, no positions",
            side="below",
            size=0.5,
            null="0: the causal mask alone tells as much",
            needs="training",
        ),
        Claim(
            name="bidirectional",
            text="A bidirectional model without positional encodings does not know positions.",
            tested="number",
            quantity="error of the place [tokens] in the last layer, no positions, causal mask removed",
            side="equal",
            expected=MIDDLE,
            size=0.5,
            null="the same models with their causal mask",
            needs="training",
        ),
        Claim(
            name="uses order",
            text="Models without positional encodings use the order of the tokens before.",
            tested="sign",
            quantity="loss of the last token [nats], the tokens before its predecessor shuffled minus as they are, "
            "no positions",
            side="above",
            size=0.1,
            null="0: a bag of tokens tells as much",
            printed="loss from 4 to more than 10",
            checked=False,
            needs="training",
        ),
    )

    def task(self, arm: Arm) -> Task:
        return Repeats()

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        texts, periods = repeats(torch.Generator().manual_seed(1), TEXTS)
        return {
            "gain": copying_gain(model(texts[:, :-1]), texts[:, 1:], periods),
            "order": order_gain(model, texts),
            **place_errors(model, texts[:, :-1]),
        }

    def has_learnt(self, run: TrainedRun) -> bool:
        return run.numbers["gain"] > LEAST_GAIN

    def controls(self, seed: int) -> Sequence[Control]:
        generator = torch.Generator().manual_seed(seed)
        places = torch.arange(TOKENS, dtype=torch.float64)[:, None].expand(TEXTS, TOKENS, 1)
        noise = torch.randn(TEXTS, TOKENS, 8, generator=generator, dtype=torch.float64)
        mixed = places.gather(1, torch.rand(TEXTS, TOKENS, 1, generator=generator).argsort(1))
        texts = torch.randint(SYMBOLS, (TEXTS, TOKENS + 1), generator=generator)
        return (
            Control(name="error where the place is a column", expected=0.0, got=place_error(places), tolerance=0.05),
            Control(name="error where the place is in the variance alone", expected=0.0,
                    got=place_error(noise.sign() * (1 + places).sqrt()), tolerance=0.5),
            Control(name="error where places are permuted in each text", expected=MIDDLE,
                    got=place_error(mixed), tolerance=0.5),
            Control(name="shuffling of a model that reads one token", expected=0.0,
                    got=order_gain(nn.Embedding(SYMBOLS, SYMBOLS), texts), tolerance=1e-6),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        runs = subject.runs
        if runs is None:
            return {}
        before, error = runs.curve("none", "place error").T
        free = runs.numbers("none", "place error unmasked")
        middle = over_pairs("error", error, unit="tokens").model_copy(update={"null": MIDDLE})
        return {
            "knows positions": middle,
            "by training": over_pairs("difference", error - before, unit="tokens"),
            "bidirectional": over_pairs("error", free, error, unit="tokens"),
            "uses order": over_pairs("added loss", runs.numbers("none", "order")),
        }


def place_errors(model: nn.Module, texts: Ids) -> dict[str, float]:
    """Return how well places are read from the last layer.

        place error:           of ridge regression [tokens], see `place_error`
        place error unmasked:  the same without the causal mask, with the same weights

    Args:
        model: a decoder.
        texts: rows of token ids, all of one length.
    """
    last, free = (attention_outputs(attach(model), texts, causal=causal).streams[-1] for causal in (True, False))
    return {"place error": place_error(last), "place error unmasked": place_error(free)}


def place_error(x: Float[Tensor, "texts places width"]) -> float:
    """Mean absolute error of the place [tokens], by ridge regression on vectors and their squares, other texts.

    Always answering the middle of n places has the error n / 4.
    """
    known, others = x[0::2], x[1::2]
    mean, spread = known.mean((0, 1)), known.std((0, 1)).clamp(min=1e-12)
    features = [torch.cat([(one - mean) / spread, ((one - mean) / spread) ** 2], -1) for one in (known, others)]
    centre = features[0].mean((0, 1))
    told, asked = ((one - centre).flatten(0, 1) for one in features)
    places = torch.arange(x.shape[1], dtype=x.dtype) - (x.shape[1] - 1) / 2
    gram = told.T @ told / len(told) + PENALTY * torch.eye(told.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, told.T @ places.repeat(len(known)) / len(told))
    return float((asked @ weights - places.repeat(len(others))).abs().mean())


def order_gain(model: nn.Module, texts: Ids) -> float:
    """Loss of the last token with the tokens before its predecessor shuffled, minus that of the texts [nats]."""
    inputs, targets = texts[:, :-1], texts[:, -1]
    order = torch.randperm(inputs.shape[1] - 1, generator=torch.Generator().manual_seed(0))
    shuffled = torch.cat([inputs[:, order], inputs[:, -1:]], 1)
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(one)[:, -1], targets) for one in (shuffled, inputs)]
    return float(losses[0] - losses[1])
