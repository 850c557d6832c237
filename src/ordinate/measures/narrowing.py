"""Heads that make do with fewer directions, each layer while it is computed."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.measures.presenting import Sample
from ordinate.measures.turning import STEPS
from ordinate.measures.weighing import Weighed
from ordinate.ops.truncation import narrowing
from ordinate.shapes import Keys, Queries, Values
from ordinate.subject import Subject, Unfit, Watch

# texts and tokens whose queries and keys are kept
FEW, SHORT = 8, 64

# of a layer, head by head: matrices, or what they make of tokens
Pair = tuple[Float[Tensor, "h rows d"], Float[Tensor, "g rows d"]]


class Narrowed(Watch):
    """Multiplies queries by a matrix of each layer and head, before they are turned by their places.

    Args:
        by: the matrices, layer by layer.
        turned: the layers that turn their queries.
    """

    def __init__(self, by: list[Float[Tensor, "h d d"]], turned: frozenset[int]) -> None:
        self.by, self.turned = by, turned

    def raw(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys] | None:
        """Before they are turned."""
        return (q @ self.by[layer].to(q), k) if layer in self.turned else None

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        """Where nothing turns them."""
        return None if layer in self.turned else (q @ self.by[layer].to(q), k, v)


class Met(Watch):
    """Keeps queries and keys, before they are turned by their places.

    Args:
        turned: the layers that turn theirs.
    """

    def __init__(self, turned: frozenset[int]) -> None:
        self.turned = turned
        self.found: dict[int, Pair] = {}

    def raw(self, layer: int, q: Queries, k: Keys) -> None:
        """Before they are turned."""
        self._keep(layer, q, k)

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        """Where nothing turns them."""
        if layer not in self.turned:
            self._keep(layer, q, k)

    def _keep(self, layer: int, q: Queries, k: Keys) -> None:
        own = [x.transpose(0, 1).flatten(1, 2).double().cpu() for x in (q, k)]
        self.found[layer] = own[0], own[1]


def of_weights(weights: Weighed) -> list[Pair]:
    """W_q and W_k of each layer, what the norm before multiplies by folded in."""
    return [(own.gain[:, None] * own.query, own.gain[:, None] * own.key) for own in weights.layers]


def of_tokens(subject: Subject, chosen: Sample, weights: Weighed) -> list[Pair]:
    """The queries and keys of some texts in the place of the matrices: what is then kept is what these make use of.

    Raises:
        Unfit: they cannot be watched.
    """
    few = chosen.first(FEW, SHORT)
    watch = Met(frozenset(weights.turns or ()))
    subject.read(few.given(slice(0, few.texts)), watch)
    return [watch.found[layer] for layer in range(len(watch.found))]


def narrowed(layers: list[Pair], weights: Weighed, rank: int, seed: int | None = None) -> Narrowed:
    """All heads with so many directions in which their queries meet keys.

    Args:
        layers: the matrices, or queries and keys.
        weights: tells by what they are turned.
        rank: how many directions are kept.
        seed: of directions drawn at random; None: those of the largest singular values.

    Raises:
        Unfit: by what queries and keys are turned is not known.
    """
    if weights.turns is None:
        raise Unfit("one subspace must serve all turns of its queries and keys, and these were not seen one by one")
    # of a grid of offsets some tell as much: all of them are combinations of as many turns as channels
    some = [place for place, offset in enumerate(weights.offsets) if {abs(step) for step in offset} <= set(STEPS)]
    found = []
    for layer, (query, key) in enumerate(layers):
        turn = torch.eye(query.shape[-1], dtype=torch.float64)[None, None]
        turn = weights.turns[layer][:, some] if layer in weights.turns else turn
        draw = None if seed is None else torch.Generator().manual_seed(1000 * seed + layer)
        found.append(narrowing(query, key, turn, rank, draw))
    return Narrowed(found, frozenset(weights.turns))
