"""Scale of attention scores: measured, removed or moved behind the softmax; entropy, and the hull of the values."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Keys, Queries, Values, Weights
from ordinate.ops.convex_hull import hull_distance_bound
from ordinate.ops.heads import repeat_for_heads
from ordinate.probing._adapter import MASKED_SCORE, AttentionRecord, Hooks, ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.measures.permutation_equivariance import rounding_tolerance
from ordinate.probing.measures.samples import AccumulatingHooks, Sample, by_layer

# texts and tokens for the convex-hull test
MAX_TEXTS, MAX_TOKENS = 8, 32


class RemovedScale(Hooks):
    """Removes the scale from the scores, and optionally applies it to the attention weights instead.

    Args:
        scale: the model's scale of the scores.
        after_softmax: multiply the attention weights by the scale.
    """

    def __init__(self, scale: float, *, after_softmax: bool) -> None:
        self.scale, self.outside = scale, after_softmax

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        """Divide queries by the scale; additive biases are unchanged."""
        return q / self.scale, k, v

    def attention_pattern(self, layer: int, weights: Weights) -> Weights | None:
        """Scale the weights: rows then sum to the scale, and outputs are no convex combinations of values."""
        return weights * self.scale if self.outside else None


class OutsideHull(AccumulatingHooks):
    """Counts attention outputs outside the convex hull of the values.

    Args:
        facts: description of the model.
    """

    def __init__(self, facts: ModelInfo) -> None:
        self.near = rounding_tolerance(facts.dtype)
        self.found: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        # only values with positive weight span the hull
        weights = seen.pattern.double()
        values = repeat_for_heads(seen.v.transpose(0, 1), weights.shape[1]).transpose(0, 1).double()
        out = weights @ values
        away = hull_distance_bound(out, values, weights > 0) > self.near * out.norm(dim=-1)
        self.found[layer].append(away.double().mean((-2, -1)).cpu())


class _Doubled(Hooks):
    """Multiplies the queries of the first layer, and captures query-key products and scores."""

    skip_head = True

    def __init__(self, times: float) -> None:
        self.times = times
        self.products, self.kept = torch.empty(0), torch.empty(0)

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        if layer:
            return None
        keys = repeat_for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1)
        self.products = (q.double() @ keys.double().mT).cpu()
        return q * self.times, k, v

    def attention_scores(self, layer: int, scores: Weights) -> None:
        if not layer:
            self.kept = scores.double().cpu()


def score_scale(subject: ModelAdapter, sample: Sample) -> float:
    """Measure the scale of the scores: least-squares slope of the score increase when queries are doubled.

    Additive biases cancel; under a softcap it is the effective scale near 0.

    Raises:
        NotApplicable: attention is not observable, or all query-key products are 0.
    """
    given, pair = sample.truncated(1, MAX_TOKENS).inputs(slice(0, 1)), (_Doubled(1.0), _Doubled(2.0))
    for watch in pair:
        subject.forward(given, watch)
    one, two = pair
    seen = (one.kept > MASKED_SCORE) & (two.kept > MASKED_SCORE)
    products = torch.where(seen, one.products, 0.0)
    grown = torch.where(seen, two.kept - one.kept, 0.0)
    whole = float(products.square().sum())
    if whole == 0:
        raise NotApplicable("all query-key products of the first layer are 0, so that the scale cannot be measured")
    return float((products * grown).sum()) / whole


def relative_entropy(subject: ModelAdapter, sample: Sample) -> Float[Tensor, "texts layers"]:
    """Entropy of attention in each layer, relative to that of uniform attention."""

    def of_pattern(weights: Weights) -> Float[Tensor, "b"]:
        # the second half of each text: early causal queries see few keys. The norm is log of the mean number of keys
        own = weights[..., weights.shape[-2] // 2 :, :].double()
        seen = own.shape[-1] - (own.shape[-2] - 1) / 2 if subject.info.causal else own.shape[-1]
        entropy = -torch.special.xlogy(own, own).sum(-1) / math.log(seen)
        return entropy.mean((-2, -1)).cpu()

    return by_layer(subject, sample.passes(subject.info), "pattern", of_pattern)


def share_outside_hull(subject: ModelAdapter, sample: Sample, change: Hooks) -> Float[Tensor, "texts layers"]:
    """Share of attention outputs that are outside the convex hull of their values, beyond rounding.

    Args:
        subject: the model.
        sample: the texts.
        change: intervention on its attention.
    """
    few = sample.truncated(MAX_TEXTS, MAX_TOKENS)
    watch = OutsideHull(subject.info).read(InterventionAdapter(subject, change), few.passes(subject.info))
    return torch.stack([torch.cat(layer) for layer in watch.found], 1)
