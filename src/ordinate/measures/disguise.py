"""Inputs and weights in disguise: permuted, rotated, renamed. What a model makes of them, undone again."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.measures.presenting import Sample, tokens_of
from ordinate.shapes import Keys, Queries, Values
from ordinate.subject import Facts, Inputs, Projection, Subject, Unfit, Watch

Norm = Literal["none", "rms", "layer"]
# queries that are computed again may differ by the norm's epsilon, no more
NEAR = 0.02


class FirstLayer(Watch):
    """Keeps what enters a layer, and the queries that it makes of it."""

    def __init__(self, layer: int, facts: Facts) -> None:
        self.layer, self.facts = layer, facts
        self.x: Tensor | None = None
        self.q: Tensor | None = None

    def stream(self, layer: int, x: Tensor) -> None:
        """Keep what enters."""
        if layer == self.layer:
            self.x = x.double().cpu()

    def raw(self, layer: int, q: Queries, k: Keys) -> None:
        """Keep queries before they are rotated."""
        if layer == self.layer:
            self.q = q.double().cpu()

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        """Keep queries that are not rotated."""
        if layer == self.layer and self.q is None:
            self.q = q.double().cpu()


class Shuffled(Watch):
    """Permutes the channels of queries and keys alike, before they are rotated or after."""

    def __init__(self, order: Int[Tensor, "d"]) -> None:
        self.order = order


class BeforeTurning(Shuffled):
    """Permutes channels before rotation."""

    met = False

    def raw(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys]:
        """Queries and keys with their channels in another order."""
        self.met = True
        if q.shape[-1] != len(self.order):
            raise Unfit(
                f"before they are rotated only {q.shape[-1]} of {len(self.order)} channels of a head are seen"
            )
        return q[..., self.order], k[..., self.order]


class AfterTurning(Shuffled):
    """Permutes channels as they enter the products."""

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values]:
        """Queries and keys with their channels in another order."""
        return q[..., self.order], k[..., self.order], v


@dataclass(frozen=True)
class Features:
    """How far queries of a disguised stream are from those of the plain one.

    Args:
        norm: the norm that the layer begins with, found by computing its queries again.
        permuted: error when columns are permuted, of stream and weights alike.
        rotated: when they are rotated.
        level: when they are rotated about the vector of ones.
    """

    norm: Norm
    permuted: float
    rotated: float
    level: float


def features(subject: Subject, inputs: Inputs, layer: int, seed: int) -> Features:
    """Queries of a layer made of the plain stream, and of a disguised one by weights in the same disguise.

        q' = norm(x Q) (Q^T gain W),    Q a permutation or a rotation of columns

    Raises:
        Unfit: its matrices are not known, or do not make its queries of its stream in a way that is known.
    """
    watch, own = FirstLayer(layer, subject.facts), subject.projection(layer)
    subject.read(inputs, watch)
    if watch.x is None or watch.q is None:
        raise Unfit("its queries cannot be watched")
    x, norm = watch.x, _norm_of(watch.x, watch.q, own)
    plain = _queries(x, norm, _folded(own))
    width, generator = x.shape[-1], torch.Generator().manual_seed(seed)
    permuted = torch.eye(width, dtype=torch.float64)[torch.randperm(width, generator=generator)]
    turned = rotation(width, generator)
    found = [_away(_queries(x @ q, norm, q.T @ _folded(own)), plain) for q in (permuted, turned, about_ones(turned))]
    return Features(norm, *found)


def rotation(width: int, generator: torch.Generator) -> Float[Tensor, "width width"]:
    """A rotation drawn evenly from all of them."""
    q, r = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=generator))
    return q * r.diagonal().sign()


def about_ones(turned: Float[Tensor, "width width"]) -> Float[Tensor, "width width"]:
    """A rotation made to leave the vector of ones where it is, so that a mean over columns is kept."""
    width = len(turned)
    basis = torch.linalg.qr(torch.cat([torch.ones(width, 1).to(turned), turned[:, 1:]], 1)).Q
    inner = torch.block_diag(torch.ones(1, 1).to(turned), torch.linalg.qr(turned[1:, 1:]).Q)
    return basis @ inner @ basis.T


def channels(subject: Subject, chosen: Sample, width: int, seed: int) -> dict[str, float]:
    """How much the output changes when channels of queries and keys are permuted alike, after and before rotation."""
    order = torch.randperm(width, generator=torch.Generator().manual_seed(seed))
    given = chosen.given(slice(0, chosen.texts))
    plain = tokens_of(subject.facts, subject.read(given).stream).double()
    found = {}
    before = BeforeTurning(order)
    for name, watch in (("as they enter the products", AfterTurning(order)), ("before they are rotated", before)):
        stream = tokens_of(subject.facts, subject.read(given, watch).stream).double()
        if watch is not before or before.met:
            found[name] = float((stream - plain).norm() / plain.norm())
    return found


def renamed(ids: Int[Tensor, "texts n"], public: Int[Tensor, "others m"], vocabulary: int, seed: int) -> float:
    """The share of tokens that are read back when tokens are renamed, by how often each comes.

    Whoever reads along knows other texts: the most frequent name is taken for the most frequent token, and so on.
    """
    names = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(seed))
    secret = names[ids]
    seen, known = (torch.bincount(x.flatten(), minlength=vocabulary) for x in (secret, public))
    guess = torch.empty(vocabulary, dtype=torch.long)
    guess[seen.argsort(descending=True, stable=True)] = known.argsort(descending=True, stable=True)
    return float((guess[secret] == ids).double().mean())


def _norm_of(x: Tensor, q: Tensor, own: Projection) -> Norm:
    matrices = _folded(own)
    if q.shape[-1] != own.query.shape[-1]:
        raise Unfit(f"before they are rotated only {q.shape[-1]} of {own.query.shape[-1]} channels are seen")
    # a bias adds the same to each query
    target = q - q.mean(2, keepdim=True)
    norms: tuple[Norm, ...] = ("none", "rms", "layer")
    made = {norm: _queries(x, norm, matrices) for norm in norms}
    errors = {norm: _away(one - one.mean(2, keepdim=True), target) for norm, one in made.items()}
    best = min(norms, key=lambda norm: errors[norm])
    if errors[best] > NEAR:
        raise Unfit(f"its queries are not its stream times a matrix: {errors[best]:.2g} off")
    return best


def _folded(own: Projection) -> Float[Tensor, "h width d"]:
    return own.query.double().cpu() * own.gain.double().cpu()[:, None]


def _queries(x: Tensor, norm: Norm, matrices: Float[Tensor, "h width d"]) -> Queries:
    if norm == "layer":
        x = x - x.mean(-1, keepdim=True)
    if norm != "none":
        x = x / x.square().mean(-1, keepdim=True).sqrt()
    return torch.einsum("bnw,hwd->bhnd", x, matrices)


def _away(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())
