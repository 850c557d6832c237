"""A small network evaluated at many points."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

# points of a row that are looked at together
POINTS = 256


def perceptron(
    x: Float[Tensor, "*any inputs"],
    layers: Sequence[nn.Linear],
    activation: Callable[[Tensor], Tensor],
    norms: Sequence[nn.LayerNorm] = (),
) -> Float[Tensor, "*any outputs"]:
    """The layers one after another, an activation behind each but the last; in float64.

    In float64 a matrix product of a few points rounds to the same float32 number as one of many points, so that a
    part of a table is what the table has there.

    Args:
        x: the points, a row for each.
        layers: their weights; they are not changed.
        activation: what makes it more than one matrix.
        norms: one for each layer but the last, applied before the activation; none at all leaves them out.
    """
    x = x.double()
    for place, layer in enumerate(layers):
        if place > 0:
            x = activation(_normed(x, norms[place - 1]) if norms else x)
        x = functional.linear(x, layer.weight.double(), None if layer.bias is None else layer.bias.double())
    return x


def _normed(x: Float[Tensor, "*any d"], norm: nn.LayerNorm) -> Float[Tensor, "*any d"]:
    return functional.layer_norm(x, norm.normalized_shape, norm.weight.double(), norm.bias.double(), norm.eps)


def of_one_number(
    x: Float[Tensor, "b i j"], inner: nn.Linear, outer: nn.Linear, dtype: torch.dtype
) -> Float[Tensor, "b outputs i j"]:
    """A network of one number with one hidden layer and relu, at many points; computed in float64.

        f(x) = U relu(w x + c) + d

    A hidden unit whose bend -c/w lies outside of the points of a tile is a straight line there, or nothing: those are
    added up beforehand, and only the few that bend are computed point by point. The way back does the same. What is
    held beyond points and results is one tile.

    Args:
        x: the points, in float64.
        inner: w and c.
        outer: U and d.
        dtype: of the results.
    """
    if torch.compiler.is_compiling():
        return perceptron(x[..., None], (inner, outer), torch.relu).movedim(-1, 1).to(dtype)
    inner_bias = inner.weight.new_zeros(inner.weight.shape[0]) if inner.bias is None else inner.bias
    outer_bias = outer.weight.new_zeros(outer.weight.shape[0]) if outer.bias is None else outer.bias
    numbers = (inner.weight[:, 0], inner_bias, outer.weight, outer_bias)
    return _OfOneNumber.apply(x, dtype, *(number.double() for number in numbers))


class _OfOneNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype, *numbers: Tensor) -> Tensor:
        ctx.save_for_backward(x, *numbers)
        network = _Network(*numbers)
        made = x.new_empty(x.shape[0], len(network.d), *x.shape[1:], dtype=dtype)
        for row, columns in _tiles(x):
            points = x[row, :, columns]
            made[row, :, :, columns] = network.straight(points).of(points.flatten()).unflatten(1, points.shape)
        return made

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        x, *numbers = ctx.saved_tensors
        network, to_x = _Network(*numbers), torch.empty_like(x)
        sums = _Network(*(torch.zeros_like(number) for number in numbers))
        for row, columns in _tiles(x):
            points, upstream = x[row, :, columns], grad_outputs[0][row, :, :, columns].double().flatten(1)
            slope = network.straight(points).learn(points.flatten(), upstream, sums)
            to_x[row, :, columns] = slope.unflatten(0, points.shape)
        return to_x, None, *sums


class _Network(NamedTuple):
    """d + U relu(w x + c)."""

    w: Float[Tensor, " hidden"]
    c: Float[Tensor, " hidden"]
    u: Float[Tensor, "outputs hidden"]
    d: Float[Tensor, " outputs"]

    def straight(self, points: Tensor) -> "_Tile":
        """The same on the range of some points, where most units do not bend."""
        low, high = points.aminmax()
        ends = torch.stack([self.w * low + self.c, self.w * high + self.c])
        on = (ends > 0).all(0)
        bent = ((ends > 0).any(0) & ~on).nonzero()[:, 0]
        return _Tile(self, on.nonzero()[:, 0], bent)


class _Tile(NamedTuple):
    """A network on a range of points.

    Args:
        network: its numbers.
        on: units that are above zero at all points.
        bent: units that are above zero at some.
    """

    network: _Network
    on: Tensor
    bent: Tensor

    def of(self, x: Float[Tensor, " n"]) -> Float[Tensor, "outputs n"]:
        """What it makes of the points."""
        w, c, u, d = self.network
        slope, level = u[:, self.on] @ w[self.on], u[:, self.on] @ c[self.on] + d
        made = torch.addcmul(level[:, None], slope[:, None], x)
        return made.addmm_(u[:, self.bent], self._bent(x)) if len(self.bent) else made

    def learn(self, x: Float[Tensor, " n"], upstream: Float[Tensor, "outputs n"], sums: _Network) -> Tensor:
        """The gradient of the points; those of the numbers are added to the sums."""
        w, c, u, _ = self.network
        total, moment, on, bent = upstream.sum(1), upstream @ x, self.on, self.bent
        sums.d.add_(total)
        sums.u[:, on] += moment[:, None] * w[on] + total[:, None] * c[on]
        sums.w[on] += moment @ u[:, on]
        sums.c[on] += total @ u[:, on]
        slope = (u[:, on] @ w[on]) @ upstream
        if not len(bent):
            return slope
        hidden = self._bent(x)
        sums.u[:, bent] += upstream @ hidden.mT
        through = torch.ops.aten.threshold_backward(u[:, bent].mT @ upstream, hidden, 0.0)
        sums.w[bent] += through @ x
        sums.c[bent] += through.sum(1)
        return slope + w[bent] @ through

    def _bent(self, x: Float[Tensor, " n"]) -> Float[Tensor, "bent n"]:
        w, c = (number[self.bent][:, None] for number in self.network[:2])
        return torch.addcmul(c, w, x).relu_()


def _tiles(x: Float[Tensor, "b i j"]) -> list[tuple[int, slice]]:
    starts = range(0, x.shape[2] if x.shape[1] else 0, POINTS)
    return [(row, slice(start, min(start + POINTS, x.shape[2]))) for row in range(x.shape[0]) for start in starts]
