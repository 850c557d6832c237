"""Scale of attention scores: measured, removed or moved behind the softmax; entropy, and the hull of the values."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Keys, Queries, Values, Weights
from ordinate.ops.convex_hull import hull_distance_bound
from ordinate.ops.heads import repeat_for_heads
from ordinate.probing._adapter import MASKED_SCORE, AttentionRecord, Hooks, ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.activations.names import lacking_activation
from ordinate.probing.measures.permutation_equivariance import rounding_tolerance
from ordinate.probing.measures.samples import AccumulatingHooks, Sample

# texts and tokens for the convex-hull test
MAX_TEXTS, MAX_TOKENS = 8, 32


class RemovedScale(Hooks):
    """Removes the scale from the scores, and optionally applies it to the attention weights instead.

    Args:
        scales: the scale of the scores of each layer.
        after_softmax: multiply the attention weights by the scale.
    """

    def __init__(self, scales: Sequence[float], *, after_softmax: bool) -> None:
        self.scales, self.outside = scales, after_softmax

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        """Divide queries by the scale; additive biases are unchanged."""
        return q / self.scales[layer], k, v

    def attention_pattern(self, layer: int, weights: Weights) -> Weights | None:
        """Scale the weights: rows then sum to the scale, and outputs are no convex combinations of values."""
        return weights * self.scales[layer] if self.outside else None


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


class _Scores(Hooks):
    """Captures query-key products and scores of each layer, with queries or keys set to 0 in all of them.

    Args:
        patterns: attention patterns that each layer keeps, so that all layers read what they do in the plain pass;
            None: this is the plain pass, and its patterns are kept.
        queries: factor of the queries, 1 or 0.
        keys: factor of the keys, 1 or 0.
    """

    skip_head = True

    def __init__(self, patterns: Mapping[int, Tensor] | None = None, *, queries: float = 1, keys: float = 1) -> None:
        self.given, self.queries, self.keys = patterns, queries, keys
        self.products, self.scores, self.patterns = (dict[int, Tensor]() for _ in range(3))

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        each = repeat_for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1)
        self.products[layer] = (q.double() @ each.double().mT).cpu()
        return q * self.queries, k * self.keys, v

    def attention_scores(self, layer: int, scores: Weights) -> None:
        self.scores[layer] = scores.double().cpu()

    def attention_pattern(self, layer: int, weights: Weights) -> Weights | None:
        self.patterns[layer] = weights.clone()
        return None if self.given is None else self.given[layer]


def score_scales(subject: ModelAdapter, sample: Sample) -> list[float]:
    """Measure the scale of the scores of each layer: the least-squares slope of the product term over the products.

        product term = s(q, k) - s(0, k) - s(q, 0) + s(0, 0),    s: the scores of these queries and keys

    Additive biases cancel, and so does what depends on queries or keys alone; under a softcap it is the effective
    scale near 0. A layer whose products are all 0 has any scale, and gets that of another.

    Raises:
        NotApplicable: attention is not observable, or all query-key products are 0.
    """
    given, plain = sample.truncated(1, MAX_TOKENS).inputs(slice(0, 1)), _Scores()
    subject.forward(given, plain)
    without = [_Scores(plain.patterns, queries=q, keys=k) for q, k in ((0, 1), (1, 0), (0, 0))]
    for watch in without:
        subject.forward(given, watch)
    found = [_slope(layer, plain, *without) for layer in sorted(plain.products)]
    measured = [one for one in found if one is not None]
    if not measured:
        raise NotApplicable("all query-key products are 0, so that the scale of the scores cannot be measured")
    return [measured[0] if one is None else one for one in found]


def _slope(layer: int, plain: _Scores, no_queries: _Scores, no_keys: _Scores, neither: _Scores) -> float | None:
    """Slope of the product term of a layer over its products; None: they are all 0."""
    scores = plain.scores[layer]
    seen = scores > MASKED_SCORE
    products = torch.where(seen, plain.products[layer], 0.0)
    term = scores - no_queries.scores[layer] - no_keys.scores[layer] + neither.scores[layer]
    whole = float(products.square().sum())
    return float((products * torch.where(seen, term, 0.0)).sum()) / whole if whole else None


class RelativeEntropy(AccumulatingHooks):
    """Entropy of attention in the second half of each text, relative to that of uniform attention.

    Args:
        facts: description of the model.
    """

    def __init__(self, facts: ModelInfo) -> None:
        self.found: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        # early causal queries see few keys. The norm is log of the mean number of keys, in a window those in it
        later = slice(seen.pattern.shape[-2] // 2, None)
        own = seen.pattern[..., later, :].double()
        keys = (seen.scores[..., later, :] > MASKED_SCORE).sum(-1).double().mean()
        entropy = -torch.special.xlogy(own, own).sum(-1) / keys.clamp(min=2).log()
        self.found[layer].append(entropy.mean((-2, -1)).cpu())


def relative_entropy(subject: ModelAdapter, sample: Sample) -> Float[Tensor, "texts layers"]:
    """Entropy of attention in each layer, relative to that of uniform attention to the keys that it sees.

    Raises:
        NotApplicable: attention is not observable.
    """
    watch = RelativeEntropy(subject.info).read(subject, sample.passes(subject.info))
    return _stacked(subject, watch.found)


def share_outside_hull(subject: ModelAdapter, sample: Sample, change: Hooks) -> Float[Tensor, "texts layers"]:
    """Share of attention outputs that are outside the convex hull of their values, beyond rounding.

    Args:
        subject: the model.
        sample: the texts.
        change: intervention on its attention.
    """
    few = sample.truncated(MAX_TEXTS, MAX_TOKENS)
    watch = OutsideHull(subject.info).read(InterventionAdapter(subject, change), few.passes(subject.info))
    return _stacked(subject, watch.found)


def _stacked(subject: ModelAdapter, found: list[list[Tensor]]) -> Float[Tensor, "texts layers"]:
    """Stack what was measured in each layer; raise if a layer has no attention that is observable."""
    if lacking := [layer for layer, own in enumerate(found) if not own]:
        raise lacking_activation(subject, "pattern", lacking)
    return torch.stack([torch.cat(own) for own in found], 1)
