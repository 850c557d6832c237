"""Dufter and Schütze 2020: encoders of two languages align them where both have the same positions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids, Tokens
from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.masked import Masked
from ordinate.models.encoder import EncoderShape
from ordinate.replications.estimates import over_pairs
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun
from ordinate.replications.two_languages import (
    SYMBOLS,
    TOKENS,
    VOCABULARY,
    Bilingual,
    BilingualArm,
    Offsets,
    TwoLanguages,
    heldout,
    translated,
)

WINDOWS, SENTENCES, ROWS = 4096, 256, 512
STEPS, BATCH, LEARNING_RATE = 1200, 128, 5e-3
# the entropy of single symbols is 2.96 nats in these texts
MOST_LOSS = 2.6
SHAPE = EncoderShape(
    vocabulary=VOCABULARY, width=32, layers=2, heads=2, scheme="learned", max_length=2 * TOKENS, embedding_std=0.1
)
# a smallest effect for every difference of accuracies
LEAST = 0.1

Vectors = Float[Tensor, "rows width"]


def _arm(name: str, offsets: Offsets = "none", token_types: int = 0) -> BilingualArm:
    shape = replace(SHAPE, token_types=token_types)
    return BilingualArm(name, shape, STEPS, BATCH, LEARNING_RATE, offsets=offsets)


def _trained(name: str, text: str, quantity: str, null: str) -> Claim:
    return Claim(
        name=name, text=text, tested="sign", quantity=quantity, side="above", size=LEAST, null=null, needs="training"
    )


class Dufter(TrainedReplication):
    """Two languages without a common symbol, in one encoder that predicts masked symbols.

        translation:  share of symbols whose nearest vector of the other language, by cosine, is that of their copy
        retrieval:    the same for texts, each by the mean of its vectors
        centred:      with the mean vector of each language taken off

    Vectors are hidden states after the first of two layers, those of a symbol the mean over held-out texts, which are
    other ones for the other language; both directions are averaged. The second language's own positions are TOKENS to
    2 TOKENS - 1; tables have 2 TOKENS rows in all arms.

    Source: Dufter and Schütze 2020, https://arxiv.org/abs/2005.00396, and its repository.
    Departs: symbols are characters of Python's documentation, 28 in place of 2048 word pieces; texts of 8 characters
        that begin with a word in place of verses; the languages read different parts of it (its "no-parallel"); width
        32, 2 layers. Its code gives the second language a token type of its own along with positions: these are two
        arms here. No [CLS] or [SEP]; its vectors of words are those of the word alone. Its score averages two layers.
        Texts, width and steps were chosen so that an arm with shared positions aligns, on another seed; whether own
        positions would align after longer training is not measured.
    """

    paper = Paper(
        authors="Dufter and Schütze", year=2020, arxiv="2005.00396",
        title="Identifying Necessary Elements for BERT's Multilinguality",
    )  # fmt: skip
    order = 30
    before_training = True
    arms = (
        _arm("shared"),
        _arm("own", "by language"),
        _arm("by chance", "by chance"),
        _arm("token types", token_types=2),
    )
    claims = (
        Claim(
            name="one solution",
            text="With shared positions a model whose second language has copies of the first one's embeddings reads "
            "both alike.",
            tested="identity",
            quantity="largest difference of hidden states of a text and its translation, relative to the largest, "
            "copied embeddings, random weights",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="the same with positions of its own for each language",
        ),
        _trained("words align", "An encoder with shared positions aligns the two languages.",
                 "accuracy of translation, shared positions", "the same models before training"),
        _trained("sentences align", "It finds translations of sentences.",
                 "accuracy of retrieval, shared positions", "the same models before training"),
        _trained("words", "Without shared positions words are aligned less.",
                 "accuracy of translation, shared positions minus own ones", "0: as well"),
        _trained("sentences", "Without shared positions sentences are aligned less.",
                 "accuracy of retrieval, shared positions minus own ones", "0: as well"),
        _trained("beyond the mean", "The languages differ by more than a constant vector.",
                 "accuracy of translation by centred vectors, shared positions minus own ones", "0: as well"),
        _trained("not fewer examples", "It is not because each position is trained by half as many texts.",
                 "accuracy of translation, positions offset by chance minus by language", "0: as well"),
        _trained("not the tag", "It is not because positions tell the language.",
                 "accuracy of translation, shared positions and a token type for each language minus own positions",
                 "0: as well"),
    )  # fmt: skip

    def task(self, arm: Arm) -> TwoLanguages:
        return TwoLanguages()

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        return alignment(cast(Bilingual, model), heldout(WINDOWS))

    def has_learnt(self, run: TrainedRun) -> bool:
        return run.numbers["loss"] < MOST_LOSS

    def controls(self, seed: int) -> Sequence[Control]:
        generator = torch.Generator().manual_seed(seed)
        one, other, shift = (torch.randn(ROWS, 64, generator=generator) for _ in range(3))
        offset = one + 4 * shift[0]
        return (
            Control(name="translation between two random tables, 1 over their rows", expected=1 / ROWS,
                    got=matches(one, other), tolerance=0.01),
            Control(name="translation between a table and a noisy copy", expected=1.0,
                    got=matches(one, one + other / 4), tolerance=0.0),
            Control(name="translation between a table and a copy with its rows in another order", expected=0.0,
                    got=matches(one, one.roll(1, 0)), tolerance=0.0),
            Control(name="translation by centred vectors between a table and a copy offset by a vector", expected=1.0,
                    got=matches(centred(one), centred(offset)), tolerance=0.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        same, other = (copy_difference(offsets, subject.seed) for offsets in ("none", "by language"))
        found = {"one solution": Estimate(name="difference", value=same, null=other)}
        runs = subject.runs
        if runs is None:
            return found
        words, sentences, middle = (
            {arm.name: runs.numbers(arm.name, name) for arm in self.arms}
            for name in ("words", "sentences", "centred words")
        )
        untrained = {name: runs.curve("shared", name)[:, 0] for name in ("words", "sentences")}
        return found | {
            "words align": over_pairs("accuracy", words["shared"], untrained["words"], unit=""),
            "sentences align": over_pairs("accuracy", sentences["shared"], untrained["sentences"], unit=""),
            "words": over_pairs("difference", words["shared"] - words["own"], unit=""),
            "sentences": over_pairs("difference", sentences["shared"] - sentences["own"], unit=""),
            "beyond the mean": over_pairs("difference", middle["shared"] - middle["own"], unit=""),
            "not fewer examples": over_pairs("difference", words["by chance"] - words["own"], unit=""),
            "not the tag": over_pairs("difference", words["token types"] - words["own"], unit=""),
        }


def alignment(model: Bilingual, texts: Ids) -> dict[str, float]:
    """Return how well a model aligns the languages, and its loss on masked symbols of both [nats].

    Args:
        model: the encoder.
        texts: held-out texts of the first language.
    """
    half = len(texts) // 2
    words = [symbol_means(hidden(model, ids), ids % SYMBOLS) for ids in (texts[:half], translated(texts[half:]))]
    pairs = [hidden(model, ids).mean(1) for ids in (texts[:SENTENCES], translated(texts[:SENTENCES]))]
    return {
        "loss": masked_loss(model, torch.cat([texts[:half], translated(texts[half:])])),
        "words": matches(*words),
        "sentences": matches(*pairs),
        "centred words": matches(*map(centred, words)),
        "centred sentences": matches(*map(centred, pairs)),
        "table": matches(*model.tokens.weight[: 2 * SYMBOLS].split(SYMBOLS)),
    }


def hidden(model: Bilingual, ids: Ids) -> Tokens:
    """Return the hidden states after the first layer."""
    kept: list[Tokens] = []
    handle = model.blocks[0].register_forward_hook(lambda block, given, out: kept.append(out[0]))
    try:
        with torch.no_grad():
            model(ids)
    finally:
        handle.remove()
    return kept[0]


def symbol_means(x: Tokens, places: Ids) -> Vectors:
    """Return the mean vector of each symbol over the places where it is.

    Args:
        x: vectors of all places.
        places: symbol of each place, of the first language.
    """
    at = nn.functional.one_hot(places.flatten(), SYMBOLS).to(x.dtype)
    return at.T @ x.flatten(0, 1) / at.sum(0)[:, None]


def centred(x: Vectors) -> Vectors:
    """Return vectors less their mean."""
    return x - x.mean(0)


def matches(one: Vectors, other: Vectors) -> float:
    """Return the share of rows whose nearest row of the other table, by cosine, is their own; both directions."""
    near = nn.functional.normalize(one, dim=1) @ nn.functional.normalize(other, dim=1).T
    own = torch.arange(len(one))
    return float(torch.stack([near.argmax(side) == own for side in (0, 1)]).double().mean())


def masked_loss(model: Bilingual, texts: Ids) -> float:
    """Return the loss on masked symbols of texts, the same ones in each call [nats]."""
    task = Masked(tokens=texts.flatten().numpy(), vocabulary=VOCABULARY, length=TOKENS)
    batch = task.hide(texts, torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model.batch_logits(batch)
    return float(nn.functional.cross_entropy(logits.mT, batch.targets, ignore_index=IGNORE_INDEX))


def copy_difference(offsets: Offsets, seed: int) -> float:
    """Return how far final hidden states of texts and translations differ where the embeddings are copies.

    Args:
        offsets: positions of the second language.
        seed: of the weights and texts.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Bilingual(SHAPE, offsets).eval()
        texts = torch.randint(SYMBOLS, (8, TOKENS))
    with torch.no_grad():
        model.tokens.weight[SYMBOLS : 2 * SYMBOLS] = model.tokens.weight[:SYMBOLS]
        one, other = model(texts), model(translated(texts))
    return float((one - other).abs().max() / one.abs().max())
