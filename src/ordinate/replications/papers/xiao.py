"""Xiao et al. 2024: a cache of recent tokens breaks when the first tokens leave it."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids
from ordinate.ops.stats.bootstrap import mean_interval
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, ModelAdapter
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

# first tokens that are kept, and the share of a text that is in the cache, 1 / 4
KEPT, SHARE, BATCH = 4, 4, 8
TEXTS, TOKENS = 4, 32

Cache = Bool[Tensor, "queries queries"]
Nats = Float[Tensor, "texts"]


class Xiao(Replication):
    """Loss with a cache of recent tokens, with and without the first four.

        window:  each query attends to the last w tokens
        first:   to the last w - 4 tokens and the first 4
        others:  to the last w - 4 tokens and 4 from the middle
        again:   the last w tokens are encoded anew for each query

    States in a cache were computed while it held others: that is attention with one mask in all layers. The window is
    a quarter of the texts; the loss is that of their second half. Removing token 0 from a head makes its output o
    (o - a v_0) / (1 - a), with the weight a and value v_0 of that token.

    Source: Xiao et al. 2024, https://arxiv.org/abs/2309.17453, sections 3.1 and 3.2.
    Departs: positions are those in the text, not in the cache; texts of 128 tokens, within the length of training.
    """

    paper = Paper(
        authors="Xiao et al.", year=2024, arxiv="2309.17453",
        title="Efficient Streaming Language Models with Attention Sinks",
    )  # fmt: skip
    order = 7
    claims = (
        Claim(
            name="denominator",
            text="Without the first token the other weights of a head grow by what it had: the denominator changes.",
            tested="identity",
            quantity="largest difference of the output without the first token and (o - a v) / (1 - a), relative to "
            "the largest output, random decoder",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="o - a v: weights of the others unchanged",
        ),
        Claim(
            name="window breaks",
            text="A cache of the most recent tokens loses far more than encoding these tokens again.",
            tested="sign",
            quantity="loss with a window of a quarter of the text minus that of the same tokens encoded again [nats]",
            side="above",
            size=0.1,
            null="0: what is left out is not needed",
            printed="perplexity 5158 against 5.43, Llama-2-13B, window 1024",
            checked=False,
            needs="model",
        ),
        Claim(
            name="four tokens",
            text="Keeping the first four tokens in the cache mends it.",
            tested="sign",
            quantity="loss with the first four tokens in place of the four oldest of the window minus that of the "
            "window [nats]",
            side="below",
            size=0.1,
            null="0: they tell as much as the four oldest of the window",
            printed="perplexity 5.40 against 5158, Llama-2-13B, window 1024",
            checked=False,
            needs="model",
        ),
        Claim(
            name="first, not others",
            text="It is the first tokens that matter, not four more distant ones.",
            tested="sign",
            quantity="loss with the first four tokens minus that with four from the middle [nats]",
            side="below",
            size=0.1,
            null="0: any four tell as much",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        model, ids = random_decoder(seed, "rope"), random_texts(seed, TEXTS, TOKENS)
        plain, whole = nats(model, ids, None), nats(model, ids, cache(TOKENS - 1, TOKENS, 0, 0))
        return (
            Control(name="loss with a cache of all tokens minus that of the model", expected=0.0,
                    got=float((plain - whole).abs().max()), tolerance=1e-5),
            Control(name="tokens that the last query finds in a cache of 12 recent and 4 first ones", expected=16.0,
                    got=float(cache(TOKENS, 12, 0, KEPT)[-1].sum()), tolerance=0.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        ids = random_texts(subject.seed, TEXTS, TOKENS)
        error, without = eviction_errors(random_decoder(subject.seed, "rope"), ids)
        found = {"denominator": Estimate(name="relative difference", value=error, null=without)}
        model, texts = subject.model, subject.texts
        if model is None or texts is None or texts.ids is None or not model.info.causal:
            return found
        losses = cache_losses(model, texts.ids)
        gaps = {
            "window breaks": losses["window"] - losses["again"],
            "four tokens": losses["first"] - losses["window"],
            "first, not others": losses["first"] - losses["others"],
        }
        return found | {name: _mean(gap, subject.seed) for name, gap in gaps.items()}


class Evicted(Hooks):
    """Compares outputs of heads without the first token with what the formula gives."""

    skip_head = True

    def __init__(self) -> None:
        self.errors, self.unchanged = list[float](), list[float]()

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        scores, values = seen.scores.double()[:, :, 1:, 1:], seen.v.double()
        truth = scores.softmax(-1) @ values[:, :, 1:]
        weight = seen.pattern.double()[:, :, 1:, :1]
        rest = (seen.pattern.double() @ values)[:, :, 1:] - weight * values[:, :, :1]
        self.errors.append(_relative(rest / (1 - weight), truth))
        self.unchanged.append(_relative(rest, truth))


def eviction_errors(model: ModelAdapter, ids: Ids) -> tuple[float, float]:
    """Return the largest relative difference of the formula, and of its numerator alone, from the output."""
    watch = Evicted()
    model.forward(Inputs(ids=ids), watch)
    return max(watch.errors), min(watch.unchanged)


def cache_losses(model: ModelAdapter, ids: Ids) -> dict[str, Nats]:
    """Return the loss of the second half of each text [nats], by kind of cache.

    Args:
        model: a decoder.
        ids: texts.
    """
    n = ids.shape[1] - 1
    window, middle = n // SHARE, n // SHARE
    caches = {
        "window": cache(n, window, 0, 0),
        "first": cache(n, window - KEPT, 0, KEPT),
        "others": cache(n, window - KEPT, middle - KEPT, KEPT),
    }
    found = {name: nats(model, ids, mask) for name, mask in caches.items()}
    return {**found, "again": encoded_again(model, ids, window)}


def cache(n: int, recent: int, start: int, count: int) -> Cache:
    """Return which tokens each query (row) finds in its cache: the most recent, and `count` from a start on."""
    keys = torch.arange(n)
    apart = keys[:, None] - keys
    return (apart >= 0) & ((apart < recent) | ((keys >= start) & (keys < start + count)))


def nats(model: ModelAdapter, ids: Ids, mask: Cache | None) -> Nats:
    """Return the loss of the second half of each text with this mask in all layers; None: the model's own."""
    inputs, targets, half = ids[:, :-1], ids[:, 1:], ids.shape[1] // 2
    found = []
    for rows, wanted in zip(inputs.split(BATCH), targets.split(BATCH), strict=True):
        logits = _logits(model, Inputs(ids=rows, mask=None if mask is None else mask[None]))
        each = nn.functional.cross_entropy(logits[:, half:].double().mT, wanted[:, half:], reduction="none")
        found.append(each.mean(1))
    return torch.cat(found)


def encoded_again(model: ModelAdapter, ids: Ids, window: int) -> Nats:
    """Return the loss of the second half of each text, each token predicted from its own window alone."""
    inputs, targets, half = ids[:, :-1], ids[:, 1:], ids.shape[1] // 2
    found = []
    for row, wanted in zip(inputs, targets, strict=True):
        logits = _logits(model, Inputs(ids=row.unfold(0, window, 1)[half - window + 1 :]))[:, -1]
        found.append(nn.functional.cross_entropy(logits.double(), wanted[half:]))
    return torch.stack(found)


def _logits(model: ModelAdapter, inputs: Inputs) -> Tensor:
    logits = model.forward(inputs).logits
    if logits is None:
        raise ValueError(f"losses need logits; {model.info.name} has none; give a model with a language-model head")
    return logits


def _relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def _mean(values: Nats, seed: int) -> Estimate:
    mean = mean_interval(values.numpy(), seed)
    return Estimate(name="difference", value=mean.value, low=mean.low, high=mean.high, null=0.0, unit="nats")
