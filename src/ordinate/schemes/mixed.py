"""Rotation of queries and keys along trained directions."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.checks import need, need_positive
from ordinate.ops.axes import HEO
from ordinate.ops.heads import for_heads, key_heads
from ordinate.ops.rotate import Layout, Rotation
from ordinate.scheme import Scheme
from ordinate.shapes import Keys, Positions, Queries


class Mixed(Scheme):
    """Rotate each pair of channels by an angle that grows along a direction which the head learns.

        angle(p, h, m) = sum over axes a of  p_a * w[a, h, m]     [radians]

    Row and column enter every pair, so that a pair can follow a slanted line too. The frequencies w are trained.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, at least 2 for each axis.
        heads: heads of the model.
        kv_heads: heads of the keys; None: as many. A group of query heads shares the directions of its key head,
            since a key is marked once.
        axes: how many position axes, 2 or 3.
        theta: base of the lengths of w at birth: theta^(-2 A m/d) for m = 0 .. d/(2A) - 1 along each of A directions
            at right angles, which each head draws at random [radians a token].
        layout: which channels pair up, `half` or `interleaved` as in rope.
    Raises:
        ValueError: a head too narrow for the axes, or kv_heads that do not divide heads.
    Source: Heo et al. 2024, https://arxiv.org/abs/2403.13298 (RoPE-Mixed), birth from its published code.
    Departs: groups of heads, and three axes; there the first axis is the column.
    """

    axes = (2, 3)
    per_layer = True
    shift_invariant = True
    citation = HEO

    def __init__(
        self,
        *,
        head_width: int,
        heads: int,
        kv_heads: int | None = None,
        axes: int = 2,
        theta: float = 10.0,
        layout: Layout = "interleaved",
    ) -> None:
        super().__init__()
        need_positive("theta", theta)
        groups = key_heads(heads, kv_heads)
        need(axes in type(self).axes, "mixed takes 2 or 3 axes", f"got {axes}", "give the number of position axes")
        need(
            head_width >= 2 * axes,
            f"{axes} axes need {2 * axes} channels of a head",
            f"got head width {head_width}",
            "choose fewer heads",
        )
        self.axes, self.layout = (axes,), layout
        lengths = [theta ** (-2 * axes * m / head_width) for m in range(head_width // (2 * axes))]
        directions = _directions(axes, groups)
        self.frequencies = nn.Parameter((directions[..., None] * torch.tensor(lengths)).flatten(-2))

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        """Rotate the queries."""
        return self._turn(q, pos)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        """Rotate the keys."""
        return self._turn(k, pos)

    def angles(self, pos: Positions, heads: int) -> Float[Tensor, "#b {heads} n pairs"]:
        """The angle of each head's pairs of channels at each position [radians]."""
        # sums over axes one by one: a matrix product would round a token otherwise among others than alone
        parts = [
            place[:, None].double() * for_heads(table, heads).double()[:, None]
            for place, table in zip(pos.split(1, -1), self.frequencies, strict=True)
        ]
        return torch.stack(parts).sum(0)

    def _turn(self, x: Queries, pos: Positions) -> Queries:
        angles = self.angles(pos, x.shape[1])
        return Rotation(angles.cos(), angles.sin(), self.layout)(x)


def _directions(axes: int, heads: int) -> Float[Tensor, "{axes} {heads} {axes}"]:
    """For each head, as many random directions at right angles as there are axes: the last axis counts directions."""
    if axes == 2:
        angle = torch.rand(heads) * 2 * math.pi
        return torch.stack(
            [
                torch.stack([angle.cos(), -angle.sin()], -1),
                torch.stack([angle.sin(), angle.cos()], -1),
            ]
        )
    return torch.linalg.qr(torch.randn(heads, axes, axes))[0].transpose(0, 1)
