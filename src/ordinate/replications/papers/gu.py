"""Gu et al. 2025: attention sinks, and what they need."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.core.shapes import Ids, Weights
from ordinate.ops.normalising import sigmoid
from ordinate.ops.stats.bootstrap import mean_interval
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, ModelAdapter
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

# mean weight from which the first token is a sink of a head
SINK = 0.3
TOKENS, SHORT = 64, 9
# scores of a head that should attend to nothing
LOW = -10.0
# tokens after the first one, the null
NEXT = 3
BATCH = 16


class Gu(Replication):
    """Attention sink: the share of heads whose mean weight on the first token is above 0.3.

        alpha_k = mean over queries i >= k of A_ik;    share of heads with alpha_0 > 0.3, of each text

    Uniform causal attention has alpha_0 = H_T / T, which is above 0.3 in texts of up to 9 tokens.

    Source: Gu et al. 2025, https://arxiv.org/abs/2410.10781, sections 3 and 7.
    Departs: the null is the share of heads whose sink is one of the next three tokens.
    """

    paper = Paper(
        authors="Gu et al.", year=2025, arxiv="2410.10781",
        title="When Attention Sink Emerges in Language Models: An Empirical View",
    )  # fmt: skip
    order = 6
    claims = (
        Claim(
            name="threshold",
            text="A head that attends evenly is no sink by the threshold of 0.3.",
            tested="number",
            quantity=f"mean weight on the first token of {TOKENS} under even causal attention",
            side="below",
            size=0.1,
            null="the threshold",
        ),
        Claim(
            name="nothing to attend to",
            text="Sinks are due to the normalisation: sigmoid attention without it can attend to nothing.",
            tested="identity",
            quantity=f"sum of the weights of a query whose scores are all {LOW:g}, sigmoid attention, {TOKENS} keys",
            side="equal",
            expected=0.0,
            size=0.01,
            null="softmax attention",
        ),
        Claim(
            name="first token",
            text="Trained decoders have heads with their sink at the first token.",
            tested="sign",
            quantity="share of heads whose mean weight on the first token is above 0.3",
            side="above",
            size=0.05,
            null="the same at one of the next three tokens",
            printed="15 to 35 % in models of 60M parameters",
            checked=False,
            needs="model",
        ),
        Claim(
            name="place, not token",
            text="The sink is at the first place, whichever token is there.",
            tested="sign",
            quantity="share of heads whose sink is at the first token, where that is a token from the middle of "
            "another text",
            side="above",
            size=0.05,
            null="the same at one of the next three tokens",
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        return (
            Control(name="share of sinks of a planted first-token head among four heads", expected=0.25,
                    got=float(sink_shares(planted(0, seed))[:, 0].mean()), tolerance=1e-9),
            Control(name="the same with its sink at the third token", expected=0.0,
                    got=float(sink_shares(planted(2, seed))[:, 0].mean()), tolerance=1e-9),
            Control(name="mean weight on the first of 9 tokens under even attention, above the threshold",
                    expected=sum(1 / m for m in range(1, SHORT + 1)) / SHORT, got=even_weight(SHORT), tolerance=1e-9),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        found = {
            "threshold": Estimate(name="weight", value=even_weight(TOKENS), null=SINK),
            "nothing to attend to": Estimate(name="sum of weights", value=weight_sum(sigmoid_row()), null=1.0),
        }
        model, texts = subject.model, subject.texts
        if model is None or texts is None or texts.ids is None or not model.info.causal:
            return found
        swapped = texts.ids.clone()
        # of another text, from its middle
        swapped[:, 0] = texts.ids.roll(1, 0)[:, texts.ids.shape[1] // 2]
        return found | {
            "first token": _share(sinks_of(model, texts.ids), subject.seed),
            "place, not token": _share(sinks_of(model, swapped), subject.seed),
        }


class SinkHooks(Hooks):
    """Captures, for each layer, at which of the first tokens each head has its sink."""

    skip_head = True

    def __init__(self) -> None:
        self.heads: list[Float[Tensor, "texts first h"]] = []

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        self.heads.append(is_sink(seen.pattern).double().cpu())


def mean_weights(pattern: Weights) -> Float[Tensor, "b n h"]:
    """Return alpha: the mean weight of each head on each key, over the queries that see it.

    Rows are normalised first: those of sigmoid attention do not sum to one.
    """
    n, weights = pattern.shape[-1], pattern.double()
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights.sum(2) / torch.arange(n, 0, -1, device=pattern.device)).mT


def is_sink(pattern: Weights) -> Float[Tensor, "b first h"]:
    """Return 1 where a head has its sink, at the first token and at the next three."""
    return (mean_weights(pattern)[:, : 1 + NEXT] > SINK).double()


def sink_shares(pattern: Weights) -> Float[Tensor, "b first"]:
    """Return the share of heads with their sink at each of the first tokens, of each text."""
    return is_sink(pattern).mean(-1)


def sinks_of(model: ModelAdapter, ids: Ids) -> Float[Tensor, "texts first"]:
    """Return the share of all heads with their sink at each of the first tokens, of each text."""
    found = []
    for rows in ids.split(BATCH):
        watch = SinkHooks()
        model.forward(Inputs(ids=rows), watch)
        found.append(torch.cat(watch.heads, -1).mean(-1))
    return torch.cat(found)


def even_weight(tokens: int) -> float:
    """Mean weight on the first token under even causal attention, H_n / n."""
    even = torch.ones(tokens, tokens, dtype=torch.float64).tril()
    return float(mean_weights(even[None, None])[0, 0, 0])


def sigmoid_row() -> Float[Tensor, "one h n m"]:
    """Sigmoid attention, without normalisation, of a query whose scores are all low."""
    scores = torch.full((1, 1, 1, TOKENS), LOW)
    return sigmoid(scores, torch.ones(1, 1, 1, TOKENS, dtype=torch.bool), 0.0)


def weight_sum(weights: Float[Tensor, "one h n m"]) -> float:
    """Sum of the weights of one query."""
    return float(weights.sum())


def planted(place: int, seed: int) -> Weights:
    """Patterns of four heads; the last one has half of its attention on this place, the others attend evenly."""
    scores = torch.zeros(2, 4, TOKENS, TOKENS, dtype=torch.float64)
    scores += 0.1 * torch.randn(scores.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    masked = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf)
    even = masked.softmax(-1)
    even[:, 3] *= 0.5
    even[:, 3, :, place] += 0.5 * (torch.arange(TOKENS) >= place)
    return even


def _share(sinks: Float[Tensor, "texts first"], seed: int) -> Estimate:
    first, others = (mean_interval(one.numpy(), seed) for one in (sinks[:, 0], sinks[:, 1:].mean(1)))
    return Estimate(
        name="share of heads", value=first.value, low=first.low, high=first.high, null=others.value,
        null_low=others.low, null_high=others.high,
    )  # fmt: skip
