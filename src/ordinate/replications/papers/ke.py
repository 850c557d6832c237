"""Ke et al. 2021: scores between words and positions are noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids, Keys, Queries, Values, Weights
from ordinate.data.tasks.text import Text
from ordinate.models.shape import Shape
from ordinate.probing._adapter import MASKED_SCORE, Hooks, Inputs, ModelAdapter
from ordinate.probing._attach import attach
from ordinate.probing.measures.samples import Sample
from ordinate.probing.measures.score_decomposition import AblatedTerms, PositionMeans, TermFactors
from ordinate.probing.measures.score_scale import score_scales
from ordinate.replications.estimates import over_pairs, over_texts
from ordinate.replications.prose import VOCABULARY, heldout_texts, train_bytes
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun

TOKENS, TEXTS, BATCH_TEXTS = 64, 256, 32
STEPS, BATCH, LEARNING_RATE = 800, 16, 3e-3
# below the entropy of a byte given the one before it, 2.56 nats in this text
MOST_LOSS = 2.5
# indices of the terms: words are tokens of the model
WORDS, CROSS, POSITIONS, ALL = (0,), (1, 2), (3,), (0, 1, 2, 3)
SHAPE = Shape(
    vocabulary=VOCABULARY, width=64, layers=2, heads=4, max_length=TOKENS, scheme="learned", embedding_std=0.02,
    embedding_scale=0.16,
)  # fmt: skip

# how positions enter that are added to the embeddings of tokens
ADDED = ("learned", "sinusoidal")

Changes = Float[Tensor, "texts"]


@dataclass(frozen=True, eq=False)
class Split:
    """What splits the scores of a model's first layer.

    Args:
        means: position means of its queries and keys.
        scale: its scale of the scores.
    """

    means: PositionMeans
    scale: float


class Ke(TrainedReplication):
    """Untied positions: scores of the first layer without the terms between words and positions.

        (w_i + p_i) Q K^T (w_j + p_j)^T = w_i Q K^T w_j^T + w_i Q K^T p_j^T + p_i Q K^T w_j^T + p_i Q K^T p_j^T

    The parts of queries and keys by position are their means at each position over texts; words have the rest. A
    vector could be moved from all words to all positions, and no score would change; so what depends on one position
    alone, or on one word alone, is with the terms between positions and between words, and the two terms between
    words and positions have what depends on both. Half of the texts give the means, the others are read.

    Source: Ke, He and Liu 2021, Rethinking Positional Encoding in Language Pre-training, section 3.1 and figure 2,
        https://arxiv.org/abs/2006.15595.
    Departs: the paper shows the correlations of BERT; here terms are taken out. Its own model, which has no such
        terms from the start, is not trained. Small models: decoders, bytes of Python's documentation, width 64.
    """

    paper = Paper(
        authors="Ke et al.", year=2021, arxiv="2006.15595",
        title="Rethinking Positional Encoding in Language Pre-training",
    )  # fmt: skip
    order = 24
    arms = (Arm("learned", SHAPE, STEPS, BATCH, LEARNING_RATE),)
    claims = (
        Claim(
            name="four terms",
            text="With added positions the scores of the first layer are the sum of four terms.",
            tested="identity",
            quantity="largest difference of the scores and the sum, relative to the largest score, random decoder "
            "with a learned table",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="the sum without the terms between words and positions",
        ),
        Claim(
            name="noise",
            text="The terms between words and positions are noise: without them a small decoder loses nothing.",
            tested="number",
            quantity="loss added by taking them out of the first layer [nats]",
            side="equal",
            expected=0.0,
            size=0.02,
            null="the same for the term between positions",
            needs="training",
        ),
        Claim(
            name="less than positions",
            text="They matter less to a small decoder than the term between positions.",
            tested="sign",
            quantity="loss added by taking them out of the first layer, minus that for the term between positions "
            "[nats]",
            side="below",
            size=0.02,
            null="0: as much",
            needs="training",
        ),
        Claim(
            name="of a checkpoint",
            text="The terms between words and positions matter less to a trained model than that between positions.",
            tested="sign",
            quantity="relative change of the last layer's output by taking them out of the first layer, minus that "
            "for the term between positions",
            side="below",
            size=0.02,
            null="0: as much",
            needs="model",
        ),
        Claim(
            name="noise of a checkpoint",
            text="They are noise: without them the output of a trained model is nearly the same.",
            tested="number",
            quantity="relative change of the last layer's output by taking them out of the first layer",
            side="equal",
            expected=0.0,
            size=0.05,
            null="the same for the term between words",
            needs="model",
        ),
    )

    def task(self, arm: Arm) -> Text:
        return Text(tokens=train_bytes(), vocabulary=VOCABULARY, length=TOKENS)

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        attached, rows = attach(model), heldout_texts(2 * TEXTS, TOKENS + 1)
        known, read = rows.split(TEXTS)
        split = split_scores(attached, known[:, :-1])
        return {
            "loss": loss(attached, read),
            **{name: loss(attached, read, WithoutTerms(split, terms))
               for name, terms in {"cross": CROSS, "positions": POSITIONS, "words": WORDS}.items()},
        }  # fmt: skip

    def has_learnt(self, run: TrainedRun) -> bool:
        return run.numbers["loss"] < MOST_LOSS

    def controls(self, seed: int) -> Sequence[Control]:
        model, ids = random_decoder(seed, "learned"), random_texts(seed, 8, TOKENS)
        whole = WithoutTerms(split_scores(model, ids), ALL)
        model.forward(Inputs(ids=ids), whole)
        plain = random_decoder(seed)
        by_tokens = WithoutTerms(split_scores(plain, same_at_each_place(ids)), POSITIONS)
        return (
            Control(name="scores that remain without all four terms", expected=0.0, got=whole.remaining,
                    tolerance=1e-4),
            Control(name="change by the term between positions without positions, where all places have the same "
                    "tokens", expected=0.0,
                    got=float(changes(plain, same_at_each_place(ids), by_tokens).max()), tolerance=1e-6),
            Control(name="change by taking no term out", expected=0.0,
                    got=float(changes(model, ids, WithoutTerms(split_scores(model, ids), ())).max()), tolerance=1e-6),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        error, without = sum_errors(random_decoder(subject.seed, "learned"), random_texts(subject.seed, 8, TOKENS))
        found = {"four terms": Estimate(name="difference", value=error, null=without)}
        if (runs := subject.runs) is not None:
            usual = runs.numbers("learned", "loss")
            cross, places = (runs.numbers("learned", name) - usual for name in ("cross", "positions"))
            found["noise"] = over_pairs("added loss", cross, places)
            found["less than positions"] = over_pairs("difference", cross - places)
        model, texts = subject.model, subject.texts
        if model is None or texts is None or texts.ids is None or model.info.position not in ADDED:
            return found
        known, read = texts.ids[0::2], texts.ids[1::2]
        split = split_scores(model, known)
        cross, places, words = (
            changes(model, read, WithoutTerms(split, terms)) for terms in (CROSS, POSITIONS, WORDS)
        )
        return found | {
            "of a checkpoint": over_texts("difference", cross - places, None, subject.seed),
            "noise of a checkpoint": over_texts("change", cross, words, subject.seed),
        }


class FirstLayer(PositionMeans):
    """Position means of the first layer alone, whose queries and keys are of words and positions."""

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        if layer == 0:
            super().qkv(layer, q, k, v)

    def factors(self, layer: int, q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h n d"]) -> TermFactors:
        """Return the factors of the four terms: what depends on a position alone is with the positions."""
        asked, held = self.q[layer] / self.texts, self.k[layer] / self.texts
        word_q, word_k, uneven = q - asked, k - held, asked - asked.mean(-2, keepdim=True)
        return [(q - uneven, word_k), (word_q, held), (uneven, word_k), (asked, held)]


class WithoutTerms(AblatedTerms):
    """Takes terms out of the scores of the first layer.

    Args:
        split: what splits the scores.
        terms: indices of the terms, see `TERMS`.
    """

    def __init__(self, split: Split, terms: Sequence[int]) -> None:
        super().__init__(split.means, terms, [split.scale])
        self.remaining = 0.0

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        if layer == 0 and self.terms:
            super().qkv(layer, q, k, v)

    def attention_scores(self, layer: int, scores: Weights) -> Weights | None:
        if layer or not self.terms:
            return None
        kept = self.ablated(scores)
        seen = scores > MASKED_SCORE
        self.remaining = float((kept[seen].abs().max() / scores[seen].abs().max()).detach())
        return kept


def split_scores(model: ModelAdapter, ids: Ids) -> Split:
    """Return the position means of a model's first layer over texts, and its scale of the scores."""
    sample = Sample(ids, None, fixed=0, grid=None)
    return Split(FirstLayer(model.info).read(model, sample.passes(model.info)), score_scales(model, sample)[0])


def sum_errors(model: ModelAdapter, ids: Ids) -> tuple[float, float]:
    """Return what is left of the scores, relative to the largest, without all terms and without all but the cross."""
    split = split_scores(model, ids)
    watches = [WithoutTerms(split, terms) for terms in (ALL, (*WORDS, *POSITIONS))]
    for watch in watches:
        model.forward(Inputs(ids=ids), watch)
    whole, part = watches
    return whole.remaining, part.remaining


def loss(model: ModelAdapter, rows: Ids, watch: Hooks | None = None) -> float:
    """Return the mean loss of texts [nats], under an intervention."""
    found = []
    for part in rows.split(BATCH_TEXTS):
        logits = model.forward(Inputs(ids=part[:, :-1]), watch).logits
        if logits is None:
            raise ValueError(f"a loss needs logits; {model.info.name} has none; give a model with an output head")
        found.append(nn.functional.cross_entropy(logits.mT, part[:, 1:], reduction="none").mean(1))
    return float(torch.cat(found).mean())


def changes(model: ModelAdapter, ids: Ids, watch: Hooks) -> Changes:
    """Return the relative change of the last layer's output by an intervention, of each text."""
    found = []
    for part in ids.split(BATCH_TEXTS):
        plain, changed = (model.forward(Inputs(ids=part), one).residual.double() for one in (None, watch))
        found.append((changed - plain).flatten(1).norm(dim=1) / plain.flatten(1).norm(dim=1))
    return torch.cat(found)


def same_at_each_place(ids: Ids) -> Int[Tensor, "rotations n"]:
    """Return texts that have the same tokens at each place, each text in a rotation of its own: no place differs."""
    return torch.stack([ids[0].roll(turn) for turn in range(ids.shape[1])])
