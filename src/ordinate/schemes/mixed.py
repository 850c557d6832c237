"""RoPE-Mixed: rotary position embedding with learned 2D frequencies (Heo et al., 2024)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Keys, Positions, Queries
from ordinate.core.tensors import in_float64
from ordinate.ops.axes import HEO
from ordinate.ops.heads import repeat_for_heads, resolve_kv_heads
from ordinate.ops.rotate import Layout, Rotation
from ordinate.schemes._scheme import Scheme


class Mixed(Scheme):
    """RoPE-Mixed: rotate each channel pair by an angle with a learned frequency for each axis.

        angle(p, h, m) = sum over axes a of  p_a * w[a, h, m]     [radians]

    Each pair depends on row and column, so it can represent diagonal directions too. The frequencies w are trained.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, at least 2 for each axis.
        heads: heads of the model.
        kv_heads: key heads; None: as many as query heads. Query heads share the frequencies of their key head, since
            each key is encoded once.
        axes: number of position axes, 2 or 3.
        theta: base of the initial norms of w: theta^(-2 A m/d) for m = 0 .. d/(2A) - 1, along each of A orthogonal
            directions that are drawn at random for each head [radians per token].
        layout: which channels form a pair, `half` or `interleaved` as in rope.
    Raises:
        ValueError: a head too narrow for the axes, or kv_heads that do not divide heads.
    Source: Heo et al. 2024, https://arxiv.org/abs/2403.13298 (RoPE-Mixed), initialisation from its published code.
    Departs: grouped key heads, and three axes; in the source the first axis is the column.
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
        groups = resolve_kv_heads(heads, kv_heads)
        need(axes in type(self).axes, "mixed takes 2 or 3 axes", f"got {axes}", "give the number of position axes")
        need(
            head_width >= 2 * axes,
            f"{axes} axes need {2 * axes} channels of a head",
            f"got head_width {head_width}",
            "choose fewer heads",
        )
        self.axes, self.layout = (axes,), layout
        lengths = [theta ** (-2 * axes * m / head_width) for m in range(head_width // (2 * axes))]
        directions = _directions(axes, groups)
        self.frequencies = nn.Parameter((directions[..., None] * torch.tensor(lengths)).flatten(-2))

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        return self._turn(q, pos)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        return self._turn(k, pos)

    def angles(self, pos: Positions, heads: int) -> Float[Tensor, "#b {heads} n pairs"]:
        """Return the rotation angle of each head's channel pairs at each position [radians]."""
        # summed over axes one by one: the rounding of a matrix product could depend on the number of tokens
        parts = [
            in_float64(place[:, None]) * in_float64(repeat_for_heads(table, heads))[:, None]
            for place, table in zip(pos.split(1, -1), self.frequencies, strict=True)
        ]
        return torch.stack(parts).sum(0)

    def _turn(self, x: Queries, pos: Positions) -> Queries:
        angles = self.angles(pos, x.shape[1])
        return Rotation(angles.cos(), angles.sin(), self.layout)(x)


def _directions(axes: int, heads: int) -> Float[Tensor, "{axes} {heads} {axes}"]:
    """Return random orthogonal directions for each head, as many as axes; the last tensor axis counts directions."""
    if axes == 2:
        angle = torch.rand(heads) * 2 * math.pi
        return torch.stack(
            [
                torch.stack([angle.cos(), -angle.sin()], -1),
                torch.stack([angle.sin(), angle.cos()], -1),
            ]
        )
    return torch.linalg.qr(torch.randn(heads, axes, axes))[0].transpose(0, 1)
