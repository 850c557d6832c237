"""Biases that are a piecewise linear function of the logarithm of the distance, divided by a length of the query.

    bias(h, i, j) = f_h(z),    z = log(1 + rate_h d) share_i,    d = |p_i - p_j|

FIRE's MLP of one number, with one hidden layer and ReLU, is such a function: it is linear between the kinks -c/w of
its units. Kerple's logarithmic bias is the case of one piece.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from ordinate.core.tensors import in_float64
from ordinate.ops.linear_layer import weight_and_bias


class Pieces(NamedTuple):
    """A continuous, piecewise linear function of each head: level + slope z on the piece of z.

    Args:
        knots: where pieces meet, ascending; those that do not exist are infinite.
        levels: value of the line of each piece at 0.
        slopes: slope of each piece.
    """

    knots: Float[Tensor, " inner"]
    levels: Float[Tensor, "h pieces"]
    slopes: Float[Tensor, "h pieces"]

    def at(self, z: Float[Tensor, "b #h i j"]) -> Float[Tensor, "b h i j"]:
        """Evaluate the function of each head."""
        made = self.levels[:, :1, None] + self.slopes[:, :1, None] * z
        for piece, knot in enumerate(self.knots, 1):
            line = self.levels[:, piece, None, None] + self.slopes[:, piece, None, None] * z
            made = torch.where(z > knot, line, made)
        return made


class LogBias(NamedTuple):
    """The numbers of such a bias; all but the knots have gradients.

    Args:
        rates: how soon the logarithm flattens, not negative [1 / token].
        shares: factor of each query's logarithms, not negative.
        pieces: the function of each head.
    """

    rates: Float[Tensor, " h"]
    shares: Float[Tensor, "#b i"]
    pieces: Pieces

    def bias(self, far: Real[Tensor, "#b i j"]) -> Float[Tensor, "b h i j"]:
        """Return the bias of pairs so far apart [tokens]."""
        z = torch.log1p(self.rates[:, None, None] * far[:, None]) * self.shares[:, None, :, None]
        return self.pieces.at(z)


def mlp_pieces(inner: nn.Module, outer: nn.Module) -> Pieces:
    """Return the pieces of f(z) = U relu(w z + c) + d, in float64.

    Unit k is on, and adds U_k (w_k z + c_k), on all pieces after its kink if w_k > 0, before it if w_k < 0, and
    everywhere or nowhere if w_k = 0. So level and slope of a piece are sums over units that are on, which have the
    gradients of the parameters; where the kinks are has none, since the function is continuous.

    Args:
        inner: w and c.
        outer: U and d.
    """
    (w, c), (u, d) = weight_and_bias(inner), weight_and_bias(outer)
    w, u = in_float64(w[:, 0]), in_float64(u)
    c = torch.zeros_like(w) if c is None else in_float64(c)
    d = u.new_zeros(len(u)) if d is None else in_float64(d)
    kinks = (-c / w).detach().masked_fill(w == 0, float("inf"))
    knots, order = kinks.sort()
    rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    piece = torch.arange(len(w) + 1, device=w.device)
    after = piece > rank[:, None]
    on = torch.where((w == 0)[:, None], (c > 0)[:, None], torch.where((w > 0)[:, None], after, ~after)).to(w.dtype)
    return Pieces(knots, u @ (on * c[:, None]) + d[:, None], u @ (on * w[:, None]))


def one_line(slopes: Float[Tensor, " h"]) -> Pieces:
    """Return the function slope z of each head."""
    return Pieces(slopes.new_empty(0), torch.zeros_like(slopes)[:, None], slopes[:, None])
