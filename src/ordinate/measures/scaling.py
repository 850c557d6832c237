"""The scale of attention's scores: what it is, inside the softmax or behind it, and what it does to the weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.measures.equivariance import rounding
from ordinate.measures.presenting import Sample
from ordinate.ops.heads import for_heads
from ordinate.ops.hull import beyond
from ordinate.shapes import Keys, Queries, Values, Weights
from ordinate.subject import Attended, Facts, Subject, Unfit, Watch

# texts and tokens of which outputs are held against the hull of values, and scores of pairs that are not seen
FEW, SHORT, HIDDEN = 8, 32, -1e4


class Scaled(Watch):
    """Leaves the scale out of the softmax, and multiplies what comes out of it by the same, or not.

    Args:
        scale: what the model multiplies products of queries and keys by.
        outside: whether the weights are scaled instead.
    """

    def __init__(self, scale: float, *, outside: bool) -> None:
        self.scale, self.outside = scale, outside

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        """Take the scale back; biases keep their size."""
        return q / self.scale, k, v

    def weights(self, layer: int, weights: Weights) -> Weights | None:
        """Put it outside: rows then sum to the scale, and what comes out is no mean of values any more."""
        return weights * self.scale if self.outside else None


class Hull(Watch):
    """Counts what comes out of attention and is no mean of values: what lies outside their convex hull.

    Args:
        facts: the model.
        change: what is done to its attention.
    """

    headless = True

    def __init__(self, facts: Facts, change: Watch) -> None:
        self.change = change
        self.near = rounding(facts.dtype)
        self.found: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        """Change them."""
        return self.change.marked(layer, q, k, v)

    def scores(self, layer: int, scores: Weights) -> Weights | None:
        """Change them."""
        return self.change.scores(layer, scores)

    def weights(self, layer: int, weights: Weights) -> Weights | None:
        """Change them."""
        return self.change.weights(layer, weights)

    def attended(self, layer: int, seen: Attended) -> None:
        """Hold what came out against the values that had a part in it."""
        weights = seen.weights.double()
        values = for_heads(seen.v.transpose(0, 1), weights.shape[1]).transpose(0, 1).double()
        out = weights @ values
        away = beyond(out, values, weights > 0) > self.near * out.norm(dim=-1)
        self.found[layer].append(away.double().mean((-2, -1)).cpu())


class Spread(Watch):
    """How widely rows of weights are spread: their entropy beside that of looking at all alike, by layer.

    Args:
        facts: the model.
    """

    headless = True

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.found: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def weights(self, layer: int, weights: Weights) -> None:
        """Measure them, in the last half of a text."""
        own = weights[..., weights.shape[-2] // 2 :, :].double()
        seen = own.shape[-1] - (own.shape[-2] - 1) / 2 if self.facts.causal else own.shape[-1]
        entropy = -torch.special.xlogy(own, own).sum(-1) / math.log(seen)
        self.found[layer].append(entropy.mean((-2, -1)).cpu())


class _Doubled(Watch):
    """Multiplies the queries of the first layer, and keeps their products with keys and the scores."""

    headless = True

    def __init__(self, times: float) -> None:
        self.times = times
        self.products, self.kept = torch.empty(0), torch.empty(0)

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        if layer:
            return None
        keys = for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1)
        self.products = (q.double() @ keys.double().mT).cpu()
        return q * self.times, k, v

    def scores(self, layer: int, scores: Weights) -> None:
        if not layer:
            self.kept = scores.double().cpu()


def scale_of(subject: Subject, sample: Sample) -> float:
    """What a model multiplies the products of queries and keys by: by how much scores grow when queries are doubled.

    Biases do not grow; where scores are capped it is what is left of the scale near nought.

    Raises:
        Unfit: its attention cannot be watched, or nothing in it grows.
    """
    given, pair = sample.first(1, SHORT).given(slice(0, 1)), (_Doubled(1.0), _Doubled(2.0))
    for watch in pair:
        subject.read(given, watch)
    one, two = pair
    seen = (one.kept > HIDDEN) & (two.kept > HIDDEN)
    products = torch.where(seen, one.products, 0.0)
    grown = torch.where(seen, two.kept - one.kept, 0.0)
    whole = float(products.square().sum())
    if whole == 0:
        raise Unfit("queries and keys of its first layer have nothing in common: no scale shows")
    return float((products * grown).sum()) / whole


def spread(subject: Subject, sample: Sample) -> Float[Tensor, "texts layers"]:
    """How widely weights are spread in each layer."""
    watch = Spread(subject.facts)
    for rows in sample.parts(subject.facts):
        subject.read(sample.given(rows), watch)
    return torch.stack([torch.cat(layer) for layer in watch.found], 1)


def out_of_hull(subject: Subject, sample: Sample, change: Watch) -> Float[Tensor, "texts layers"]:
    """The share of what comes out of attention that is surely no mean of the values it was made of.

    Args:
        subject: the model.
        sample: what it reads.
        change: what is done to its attention.
    """
    watch, few = Hull(subject.facts, change), sample.first(FEW, SHORT)
    for rows in few.parts(subject.facts):
        subject.read(few.given(rows), watch)
    return torch.stack([torch.cat(layer) for layer in watch.found], 1)
