"""Heads that make do with fewer directions, each layer while it is computed."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.measures.weighing import Weighed
from ordinate.ops.truncation import narrowing
from ordinate.shapes import Keys, Queries, Values
from ordinate.subject import Unfit, Watch


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


def narrowed(weights: Weighed, rank: int, seed: int | None = None) -> Narrowed:
    """All heads with so many directions in which their queries meet keys.

    Args:
        weights: the matrices, and by what they are turned.
        rank: how many directions are kept.
        seed: of directions drawn at random; None: those of the largest singular values.

    Raises:
        Unfit: by what queries and keys are turned is not known.
    """
    if weights.turns is None:
        raise Unfit("by what its queries and keys are turned was not seen")
    found = []
    for layer, own in enumerate(weights.layers):
        query, key = own.gain[:, None] * own.query, own.gain[:, None] * own.key
        turn = weights.turns.get(layer, torch.eye(query.shape[-1], dtype=torch.float64)[None])
        draw = None if seed is None else torch.Generator().manual_seed(1000 * seed + layer)
        found.append(narrowing(query, key, turn, rank, draw))
    return Narrowed(found, frozenset(weights.turns))
