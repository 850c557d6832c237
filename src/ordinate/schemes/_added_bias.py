"""A scheme at a geometry with a further bias, given as a tensor: a mask without structure, a learned bias."""

from typing import cast

import torch
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Bias
from ordinate.schemes._composition import Sum
from ordinate.schemes._scheme import Placed, Scheme


class AddedBias(Scheme):
    """The tensor as a scheme, so that backends see a bias and return its gradient; `PlacedWithBias` adds its values.

    Enters at: scores.
    Args:
        given: the bias (b or 1, heads or 1, n_q, n_k); -inf hides a pair.
    """

    axes = (1, 2, 3)
    shift_invariant = False
    given: Tensor

    def __init__(self, given: Bias) -> None:
        super().__init__()
        # not an nn.Parameter, which would be detached from its graph; backends look up its gradient by this name
        self._parameters["given"] = given  # type: ignore[assignment]

    @property
    def hooks(self) -> tuple[str, ...]:
        """The scores, although `bias` adds nothing: which entries belong to a block, only `PlacedWithBias` knows."""
        return ("bias",)


class PlacedWithBias(Placed):
    """A scheme at a geometry, or at a block of one, whose scores get a further bias, given as a tensor.

    Args:
        scheme: the sum of a scheme and an `AddedBias`, the last of its parts.
        where: the geometry.
        cuts: the queries and keys that a block has of the tensor, those that a block of it has of these, and so on.
    """

    def __init__(self, scheme: Scheme, where: Geometry, *cuts: tuple[slice, slice]) -> None:
        super().__init__(scheme, where)
        self._cuts = cuts

    @property
    def bias(self) -> Bias:
        """The bias of the scheme and the entries of the tensor that belong to these queries and keys."""
        return self.cached("bias", self._sum)

    def block(self, queries: slice, keys: slice | None = None) -> "PlacedWithBias":
        """Bind the scheme and the tensor to a block of the queries and keys."""
        cut = queries, slice(None) if keys is None else keys
        return PlacedWithBias(self.scheme, self.where.block(queries, keys), *self._cuts, cut)

    def _sum(self) -> Bias:
        own, added = self._bias_at(self.where), cast(AddedBias, cast(Sum, self.scheme).members[-1]).given
        for rows, columns in self._cuts:
            added = added[:, :, rows, columns]
        return added if own is None else own + added


def place_with_bias(scheme: Scheme, where: Geometry, added: Bias) -> Placed:
    """Bind a scheme to a geometry, with a further bias on the scores.

    Args:
        scheme: the scheme.
        where: the geometry.
        added: the bias (b or 1, heads or 1, queries, keys); -inf hides a pair.

    Raises:
        ValueError: a bias for other numbers of queries and keys; a scheme that reads the mask, which does not see the
            keys that a tensor hides.
    """
    need(
        tuple(added.shape[2:]) == where.shape,
        "an added bias needs a number for each pair",
        lambda: f"got {tuple(added.shape)} for {where.shape[0]} queries and {where.shape[1]} keys",
        "expand it",
    )
    need(
        not scheme.reads_mask,
        f"{type(scheme).__name__} counts the keys that a query sees, so its mask must be known by its structure",
        "got one as a tensor",
        "give is_causal=True, and a boolean key_padding_mask, in its place",
    )
    # the positions may be consecutive, but the sum is no function of the offset
    at = scheme.at(changed(where, consecutive=False))
    return PlacedWithBias(Sum(scheme, AddedBias(torch.as_tensor(added))), at.where)
