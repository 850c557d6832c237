"""Decomposition of attention scores into token-token, token-position, position-token and position-position terms."""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.shapes import Keys, Queries, Values, Weights
from ordinate.ops.heads import repeat_for_heads
from ordinate.probing._adapter import MASKED_SCORE, AttentionRecord, Hooks, ModelAdapter, ModelInfo
from ordinate.probing.measures.samples import AccumulatingHooks, Sample

TERMS = ("token-token", "token-position", "position-token", "position-position")
# texts in a group for cross-fitting
GROUP_SIZE = 5

TermFactors = list[tuple[Tensor, Tensor]]


class PositionMeans(AccumulatingHooks):
    """Mean query and key at each position: over texts with different tokens, what remains is due to position.

    Args:
        facts: description of the model.
    """

    def __init__(self, facts: ModelInfo) -> None:
        self.texts = 0
        self.q: list[Tensor] = [torch.empty(0)] * facts.layers
        self.k: list[Tensor] = [torch.empty(0)] * facts.layers

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        self.texts += len(q) if layer == 0 else 0
        keys = repeat_for_heads(k.double().sum(0), q.shape[1])
        own = q.double().sum(0)
        self.q[layer] = self.q[layer] + own if self.q[layer].numel() else own
        self.k[layer] = self.k[layer] + keys if self.k[layer].numel() else keys

    def factors(self, layer: int, q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h n d"]) -> TermFactors:
        """Return the factors of the four terms for these queries and keys."""
        return term_factors(q, k, self.q[layer] / self.texts, self.k[layer] / self.texts)


class ShuffledMeans(PositionMeans):
    """Control: the same means after shuffling positions within each text, which differ by tokens alone.

    Args:
        facts: description of the model.
        seed: seed of the shuffles.
    """

    def __init__(self, facts: ModelInfo, seed: int) -> None:
        super().__init__(facts)
        self.generator = torch.Generator().manual_seed(seed)

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        orders = torch.rand(q.shape[0], q.shape[2], generator=self.generator).argsort(1).to(q.device)
        super().qkv(layer, _moved(q, orders), _moved(k, orders), v)


class ScoreTerms(AccumulatingHooks):
    """Share of the within-row score variance due to each term.

    Cross-fitting in groups of five texts: position means for the first text are estimated from the other four, so
    that its own tokens do not leak. Each term is estimated twice independently (queries of the second and keys of the
    third text; queries of the fourth and keys of the fifth), and the product of both has no noise bias. The roles
    rotate within the group, which gives one number per group.

    Args:
        facts: description of the model.
        scales: the scale of the scores of each layer.
    """

    def __init__(self, facts: ModelInfo, scales: Sequence[float]) -> None:
        self.facts, self.scales = facts, scales
        self.found: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        """Decompose the scores, one head at a time to limit memory."""
        keys = repeat_for_heads(seen.k.transpose(0, 1), seen.q.shape[1])
        heads = [
            self._shares(layer, seen.q[:, head].double(), keys[head].double(), seen.scores[:, head].double())
            for head in range(seen.q.shape[1])
        ]
        self.found[layer].append(torch.stack(heads, 1).cpu())

    def _shares(self, layer: int, q: Tensor, k: Tensor, scores: Tensor) -> Float[Tensor, "fives terms"]:
        front, scale = self.facts.prefix, self.scales[layer]
        seen = (scores > MASKED_SCORE)[:, front:, front:]
        # additive biases depend on position, not on tokens: they belong to the position-position term
        added = torch.where(scores > MASKED_SCORE, scores - scale * (q @ k.mT), 0.0)
        sides = []
        for turn in (1, 3):
            terms = [
                scale * (a @ b.mT).expand_as(scores)
                for a, b in term_factors(q, k, _next(q, turn), _next(k, turn + 1))
            ]
            terms[-1] = terms[-1] + added
            sides.append(torch.stack([level_rows(term[:, front:, front:], seen) for term in terms]))
        whole = level_rows(scores[:, front:, front:], seen).square().sum((-2, -1)).clamp(min=1e-300)
        own = (sides[0] * sides[1]).sum((-2, -1)) / whole
        shares = torch.cat([own, 1 - own.sum(0, keepdim=True)]).T
        return shares.unflatten(0, (-1, GROUP_SIZE)).mean(1)


class AblatedTerms(Hooks):
    """Ablates terms of the scores.

    Args:
        means: position means of queries and keys.
        terms: indices into `TERMS`.
        scales: the scale of the scores of each layer.
    """

    def __init__(self, means: PositionMeans, terms: Sequence[int], scales: Sequence[float]) -> None:
        self.means, self.terms, self.scales = means, terms, scales
        self.sum = torch.empty(0)

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        keys = repeat_for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1)
        factors = self.means.factors(layer, q.double(), keys.double())
        products = cast(Tensor, sum(factors[term][0] @ factors[term][1].mT for term in self.terms))
        self.sum = self.scales[layer] * products

    def attention_scores(self, layer: int, scores: Weights) -> Weights | None:
        return self.ablated(scores)

    def ablated(self, scores: Weights) -> Weights:
        """Return the scores of the layer whose queries and keys came last without the terms."""
        return torch.where(scores > MASKED_SCORE, scores - self.sum.to(scores), scores)


def term_factors(
    q: Float[Tensor, "*b n d"], k: Float[Tensor, "*b n d"], places_q: Float[Tensor, "*c n d"], places_k: Tensor
) -> TermFactors:
    """Factors of queries and keys for each of `TERMS`, given position means.

    The mean over positions carries no position information: it stays with the token part.
    """
    asked, held = (places - places.mean(-2, keepdim=True) for places in (places_q, places_k))
    return [(q - asked, k - held), (q - asked, held), (asked, k - held), (asked, held)]


def position_means(subject: ModelAdapter, sample: Sample, shuffled_by: int | None = None) -> PositionMeans:
    """Compute the mean query and key at each position.

    Args:
        subject: the model.
        sample: the texts.
        shuffled_by: seed of shuffled positions, the control; None: the positions as they are.
    """
    means = PositionMeans(subject.info) if shuffled_by is None else ShuffledMeans(subject.info, shuffled_by)
    return means.read(subject, sample.passes(subject.info))


def score_variance_shares(
    subject: ModelAdapter, sample: Sample, scales: Sequence[float]
) -> Float[Tensor, "fives layers h terms"]:
    """Variance shares of `TERMS`, and last of their interactions (covariances); they sum to 1.

    Args:
        subject: the model.
        sample: five texts or more.
        scales: the scale of the scores of each layer.

    Raises:
        NotApplicable: attention is not observable.
    """
    terms, (first, *_) = ScoreTerms(subject.info, scales), sample.batches(subject.info)
    step = max(1, first.stop // GROUP_SIZE) * GROUP_SIZE
    end = sample.count // GROUP_SIZE * GROUP_SIZE
    groups = (slice(start, min(start + step, end)) for start in range(0, end, step))
    terms.read(subject, (sample.inputs(rows) for rows in groups))
    return torch.stack([torch.cat(layer) for layer in terms.found], 1)


def _moved(x: Float[Tensor, "b h n d"], orders: Int[Tensor, "b n"]) -> Float[Tensor, "b h n d"]:
    """Put the vectors of each text into another order."""
    return x.gather(2, orders[:, None, :, None].expand_as(x))


def _next(x: Float[Tensor, "b n d"], turn: int) -> Float[Tensor, "b n d"]:
    """Rotate the texts within each group of five."""
    return x.unflatten(0, (-1, GROUP_SIZE)).roll(-turn, 1).flatten(0, 1)


def level_rows(terms: Float[Tensor, "*b n n"], seen: Tensor) -> Float[Tensor, "*b n n"]:
    """Centre each row over its visible keys: the softmax ignores the row mean."""
    kept = torch.where(seen, terms, 0.0)
    mean = kept.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(seen, kept - mean, 0.0)
