"""How queries meet keys: seen on real tokens, and put in each other's place."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.measures.presenting import Sample
from ordinate.ops.heads import for_heads
from ordinate.shapes import Keys, Queries, Values, Weights
from ordinate.subject import Facts, Subject, Watch

SHORT = 64


class Transposed(Watch):
    """How like their transpose the scores of short texts are: <L, L^T> / |L|^2, rows and columns less their means.

    Args:
        facts: the model.
    """

    headless = True

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.found: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def scores(self, layer: int, scores: Weights) -> None:
        """Compare them; what is the same in a whole row makes no difference, and its transpose is left out too."""
        own = scores[..., self.facts.prefix :, self.facts.prefix :].double()
        own = own - own.mean(-1, keepdim=True)
        own = own - own.mean(-2, keepdim=True)
        whole = own.square().sum((-2, -1)).clamp(min=1e-300)
        self.found[layer].append(((own * own.mT).sum((-2, -1)) / whole).cpu())


class Exchanged(Watch):
    """Puts keys in the place of queries, queries in the place of keys, or both.

    Where heads of queries share one of keys, their mean takes its place.

    Args:
        queries: whether queries become keys.
        keys: whether keys become queries.
    """

    def __init__(self, *, queries: bool, keys: bool) -> None:
        self.queries, self.keys = queries, keys

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        """Exchange them."""
        asked = for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1) if self.queries else q
        return asked, q.unflatten(1, (k.shape[1], -1)).mean(2) if self.keys else k, v


class Mixed(Watch):
    """The control: the channels of queries turned by a random rotation, so that they meet keys by chance.

    Args:
        seed: of the rotations.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        """Turn the queries of each head."""
        generator = torch.Generator().manual_seed(1000 * self.seed + layer)
        drawn = torch.randn(q.shape[1], q.shape[3], q.shape[3], generator=generator, dtype=torch.float64)
        return q @ torch.linalg.qr(drawn).Q.to(q), k, v


class Symmetric(Watch):
    """Keeps of the products of queries and keys the part that is symmetric, or the part that is antisymmetric.

        scale (q_i . k_j + q_j . k_i) / 2,    scale (q_i . k_j - q_j . k_i) / 2

    What is added to them, biases, and who sees whom stay as they are.

    Args:
        scale: what the model multiplies products by.
        sign: 1 for the symmetric part, -1 for the other.
    """

    def __init__(self, scale: float, sign: int) -> None:
        self.scale, self.sign = scale, sign
        self.products = torch.empty(0)

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        """Remember how queries meet keys."""
        self.products = q @ for_heads(k.transpose(0, 1), q.shape[1]).transpose(0, 1).mT

    def scores(self, layer: int, scores: Weights) -> Weights:
        """Put the part in the place of the whole."""
        change = (self.sign * self.products.mT - self.products) / 2
        return scores + self.scale * change.to(scores)


def transposed(subject: Subject, sample: Sample) -> Float[Tensor, "texts layers h"]:
    """How symmetric scores are on real tokens, where everyone sees everyone."""
    short = sample.first(sample.texts, min(SHORT, sample.length))
    size = short.length
    everything = torch.ones(1, size, size, dtype=torch.bool) if subject.facts.causal else None
    watch = Transposed(subject.facts)
    for rows in short.parts(subject.facts):
        subject.read(short.given(rows, visible=everything), watch)
    return torch.stack([torch.cat(layer) for layer in watch.found], 1)
