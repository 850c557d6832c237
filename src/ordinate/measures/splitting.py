"""Scores taken apart: what the place of a query makes with that of a key, with its token, and so on."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.measures.presenting import Sample
from ordinate.ops.heads import for_heads
from ordinate.shapes import Keys, Queries, Values, Weights
from ordinate.subject import Attended, Facts, Subject, Watch

TERMS = ("token-token", "token-position", "position-token", "position-position")
# texts that are taken apart by each other
FIVE = 5
# scores below this are of pairs that are not seen
HIDDEN = -1e4

Pairs = list[tuple[Tensor, Tensor]]


class Means(Watch):
    """The mean query and key at each place: where they differ it is by position, the tokens being different ones.

    Args:
        facts: the model.
    """

    headless = True

    def __init__(self, facts: Facts) -> None:
        self.texts = 0
        self.q: list[Tensor] = [torch.empty(0)] * facts.layers
        self.k: list[Tensor] = [torch.empty(0)] * facts.layers

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        """Add them up."""
        self.texts += len(q) if layer == 0 else 0
        keys = for_heads(k.double().sum(0), q.shape[1])
        own = q.double().sum(0)
        self.q[layer] = self.q[layer] + own if self.q[layer].numel() else own
        self.k[layer] = self.k[layer] + keys if self.k[layer].numel() else keys

    def terms(self, layer: int, q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h n d"]) -> Pairs:
        """The pairs of parts that the terms of these queries and keys are products of."""
        return pairs(q, k, self.q[layer] / self.texts, self.k[layer] / self.texts)


class Terms(Watch):
    """How much of what scores differ by in a row is due to each term.

    Texts come in fives. The first is taken apart by what stands at each place of the second, third, fourth and fifth:
    a term made of the second's queries and the third's keys is multiplied with the same term made of the others. On
    average no text's own tokens are then taken for position; and each five gives a number of its own. Then the second
    is taken apart by the others, and so on.

    Args:
        facts: the model.
        scale: what the model multiplies products by.
    """

    headless = True

    def __init__(self, facts: Facts, scale: float) -> None:
        self.facts, self.scale = facts, scale
        self.found: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def attended(self, layer: int, seen: Attended) -> None:
        """Take scores apart, one head after another."""
        keys = for_heads(seen.k.transpose(0, 1), seen.q.shape[1])
        heads = [
            self._shares(seen.q[:, head].double(), keys[head].double(), seen.scores[:, head].double())
            for head in range(seen.q.shape[1])
        ]
        self.found[layer].append(torch.stack(heads, 1).cpu())

    def _shares(self, q: Tensor, k: Tensor, scores: Tensor) -> Float[Tensor, "fives terms"]:
        front = self.facts.prefix
        seen = (scores > HIDDEN)[:, front:, front:]
        # what is added to products, by a bias, is position's and not the token's
        added = torch.where(scores > HIDDEN, scores - self.scale * (q @ k.mT), 0.0)
        sides = []
        for turn in (1, 3):
            terms = [
                self.scale * (a @ b.mT).expand_as(scores) for a, b in pairs(q, k, _next(q, turn), _next(k, turn + 1))
            ]
            terms[-1] = terms[-1] + added
            sides.append(torch.stack([_level(term[:, front:, front:], seen) for term in terms]))
        whole = _level(scores[:, front:, front:], seen).square().sum((-2, -1)).clamp(min=1e-300)
        own = (sides[0] * sides[1]).sum((-2, -1)) / whole
        shares = torch.cat([own, 1 - own.sum(0, keepdim=True)]).T
        return shares.unflatten(0, (-1, FIVE)).mean(1)


class Lacking(Watch):
    """Leaves a term out of the scores.

    Args:
        means: what of queries and keys is position.
        term: which, of `TERMS`.
        scale: what the model multiplies products by.
    """

    def __init__(self, means: Means, term: int, scale: float) -> None:
        self.means, self.term, self.scale = means, term, scale
        self.products = torch.empty(0)

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        """Compute it."""
        keys = for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1)
        a, b = self.means.terms(layer, q.double(), keys.double())[self.term]
        self.products = a @ b.mT

    def scores(self, layer: int, scores: Weights) -> Weights:
        """Take it away from what is seen."""
        return torch.where(scores > HIDDEN, scores - self.scale * self.products.to(scores), scores)


def pairs(
    q: Float[Tensor, "*b n d"], k: Float[Tensor, "*b n d"], places_q: Float[Tensor, "*c n d"], places_k: Tensor
) -> Pairs:
    """The parts of queries and keys that each of `TERMS` is a product of, from what stands at each place.

    What is the same at all places is no position: it stays with the token.
    """
    asked, held = (places - places.mean(-2, keepdim=True) for places in (places_q, places_k))
    return [(q - asked, k - held), (q - asked, held), (asked, k - held), (asked, held)]


def means_of(subject: Subject, sample: Sample) -> Means:
    """The mean query and key at each place."""
    means = Means(subject.facts)
    for rows in sample.parts(subject.facts):
        subject.read(sample.given(rows), means)
    return means


def split(subject: Subject, sample: Sample, scale: float) -> Float[Tensor, "fives layers h terms"]:
    """The shares of `TERMS` in the scores, and last of what two of them make together; they sum to 1.

    Args:
        subject: the model.
        sample: what it reads, five texts or more.
        scale: what the model multiplies products by.

    Raises:
        Unfit: its attention cannot be watched.
    """
    terms, (first, *_) = Terms(subject.facts, scale), sample.parts(subject.facts)
    step = max(1, first.stop // FIVE) * FIVE
    for start in range(0, sample.texts // FIVE * FIVE, step):
        stop = min(start + step, sample.texts // FIVE * FIVE)
        subject.read(sample.given(slice(start, stop)), terms)
    return torch.stack([torch.cat(layer) for layer in terms.found], 1)


def _next(x: Float[Tensor, "b n d"], turn: int) -> Float[Tensor, "b n d"]:
    """Of each five texts the one that comes so many later, the first after the last."""
    return x.unflatten(0, (-1, FIVE)).roll(-turn, 1).flatten(0, 1)


def _level(terms: Float[Tensor, "b n n"], seen: Tensor) -> Float[Tensor, "b n n"]:
    """Each row less its mean over what it sees: what a softmax makes no use of."""
    kept = torch.where(seen, terms, 0.0)
    mean = kept.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(seen, kept - mean, 0.0)
