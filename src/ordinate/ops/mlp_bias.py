"""Small MLPs evaluated at every pair of positions, for learned relative position biases."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from ordinate.core.devices import on_cpu
from ordinate.core.tensors import has_free_values, in_float64, on_device
from ordinate.ops.double_backward import gradients, in_one, untraceable
from ordinate.ops.linear_layer import weight_and_bias
from ordinate.ops.log_bias import mlp_pieces
from ordinate.ops.native import build
from ordinate.ops.native.piecewise_linear import piecewise_linear

# columns of a tile, on whose range `_Network.straight` decides which units are linear
TILE_COLUMNS = 256
# numbers of units with a kink in a tile that are computed at a time, so that they stay in the processor's cache
BENT_NUMBERS = 2**17
# with fewer results, compiling the C++ kernel is not worth the wait
MIN_NATIVE = 2**16


def mlp(
    x: Float[Tensor, "*any inputs"],
    layers: Sequence[nn.Module],
    activation: Callable[[Tensor], Tensor],
    norms: Sequence[nn.LayerNorm] = (),
) -> Float[Tensor, "*any outputs"]:
    """Apply an MLP in float64: linear layers with an activation after each but the last.

    BLAS rounds a product of few rows differently from one of many. Computed in float64 and rounded to float32, both
    give the same number, so that a part of a bias table equals the whole table there.

    Args:
        x: the inputs, a row for each point.
        layers: the linear layers.
        activation: the activation function.
        norms: layer norms before the activation, one for each layer but the last; empty: no norms.
    """
    x = in_float64(x)
    for place, layer in enumerate(layers):
        if place > 0:
            x = activation(_normed(x, norms[place - 1]) if norms else x)
        weight, bias = weight_and_bias(layer)
        x = functional.linear(x, in_float64(weight), None if bias is None else in_float64(bias))
    return x


def _normed(x: Float[Tensor, "*any d"], norm: nn.LayerNorm) -> Float[Tensor, "*any d"]:
    return functional.layer_norm(x, norm.normalized_shape, in_float64(norm.weight), in_float64(norm.bias), norm.eps)


def scalar_relu_mlp(
    x: Float[Tensor, "b i j"], inner: nn.Module, outer: nn.Module, dtype: torch.dtype
) -> Float[Tensor, "b outputs i j"]:
    """MLP with a scalar input, one hidden layer and ReLU, at many points; computed in float64.

        f(x) = U relu(w x + c) + d

    A hidden unit whose kink -c/w lies outside of the range of a tile is linear or zero on it: these units are summed
    beforehand, and only the few others are evaluated point by point. The backward pass does the same. Memory beyond
    inputs and outputs is that of one tile's results.

    Args:
        x: the inputs, in float64.
        inner: w and c.
        outer: U and d.
        dtype: dtype of the result.
    """
    (w, c), (u, d) = weight_and_bias(inner), weight_and_bias(outer)
    # on a GPU, finding the units that are linear would wait for the device
    if not has_free_values(x) or untraceable(x):
        made = mlp(x[..., None], (inner, outer), torch.relu).movedim(-1, 1)
        return on_device(made, dtype, u.device)
    if dtype == torch.float32 and _native_serves(x, u):
        pieces = mlp_pieces(inner, outer)
        return piecewise_linear(x, pieces.knots, pieces.levels, pieces.slopes)
    c, d = (y.new_zeros(len(y)) if own is None else own for y, own in ((w, c), (u, d)))
    made = _OfOneNumber.apply(x, dtype, *(in_float64(number) for number in (w[:, 0], c, u, d)))
    return on_device(made, dtype, u.device)


def _native_serves(x: Tensor, u: Tensor) -> bool:
    """Whether the function is evaluated as lines between its kinks, in C++."""
    large = on_cpu(x) and on_cpu(u) and x.numel() * len(u) >= MIN_NATIVE
    return large and build.unavailable_reason("piecewise_linear") is None


class _OfOneNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype, *numbers: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *numbers)
        ctx.dtype = dtype
        network = _Network(*numbers)
        made = x.new_empty(x.shape[0], len(network.d), *x.shape[1:], dtype=dtype)
        for row, columns in _tiles(x):
            points = x[row, :, columns]
            made[row, :, :, columns] = network.straight(points).of(points.flatten()).unflatten(1, points.shape)
        return made

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors

        def plain(x: Tensor, w: Tensor, c: Tensor, u: Tensor, d: Tensor) -> Tensor:
            hidden = torch.relu(x[..., None] * w + c)
            return functional.linear(hidden, u, d).movedim(-1, 1).to(ctx.dtype)

        to_x, *sums = gradients(partial(_gradients, *inputs), in_one(plain), inputs, grad_outputs)
        return to_x, None, *sums


def _gradients(x: Tensor, w: Tensor, c: Tensor, u: Tensor, d: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of the points and of the network."""
    network, to_x = _Network(w, c, u, d), torch.empty_like(x)
    sums = _Network(*(torch.zeros_like(number) for number in network))
    for row, columns in _tiles(x):
        points, upstream = x[row, :, columns], gradient[row, :, :, columns].double().flatten(1)
        slope = network.straight(points).learn(points.flatten(), upstream, sums)
        to_x[row, :, columns] = slope.unflatten(0, points.shape)
    return to_x, *sums


class _Network(NamedTuple):
    """d + U relu(w x + c)."""

    w: Float[Tensor, " hidden"]
    c: Float[Tensor, " hidden"]
    u: Float[Tensor, "outputs hidden"]
    d: Float[Tensor, " outputs"]

    def straight(self, points: Tensor) -> "_Tile":
        """Restrict the network to the range of some points, on which most units are linear."""
        low, high = points.aminmax()
        ends = torch.stack([self.w * low + self.c, self.w * high + self.c])
        on = (ends > 0).all(0)
        bent = ((ends > 0).any(0) & ~on).nonzero()[:, 0]
        return _Tile(self, on.nonzero()[:, 0], bent)


class _Tile(NamedTuple):
    """The network on the range of one tile.

    Args:
        network: its parameters.
        on: hidden units that are positive on the whole range.
        bent: hidden units that are positive on a part of the range.
    """

    network: _Network
    on: Tensor
    bent: Tensor

    def of(self, x: Float[Tensor, " n"]) -> Float[Tensor, "outputs n"]:
        """Evaluate the network at the points."""
        w, c, u, d = self.network
        slope, level = u[:, self.on] @ w[self.on], u[:, self.on] @ c[self.on] + d
        made = torch.addcmul(level[:, None], slope[:, None], x)
        for part in self._parts(len(x)):
            made[:, part].addmm_(u[:, self.bent], self._bent(x[part]))
        return made

    def learn(self, x: Float[Tensor, " n"], upstream: Float[Tensor, "outputs n"], sums: _Network) -> Tensor:
        """Return the gradient of the points; add those of the parameters to `sums`."""
        w, c, u, _ = self.network
        total, moment, on, bent = upstream.sum(1), upstream @ x, self.on, self.bent
        sums.d.add_(total)
        sums.u[:, on] += moment[:, None] * w[on] + total[:, None] * c[on]
        sums.w[on] += moment @ u[:, on]
        sums.c[on] += total @ u[:, on]
        slope = (u[:, on] @ w[on]) @ upstream
        for part in self._parts(len(x)):
            hidden, given = self._bent(x[part]), upstream[:, part]
            sums.u[:, bent] += given @ hidden.mT
            through = torch.ops.aten.threshold_backward(u[:, bent].mT @ given, hidden, 0.0)
            sums.w[bent] += through @ x[part]
            sums.c[bent] += through.sum(1)
            slope[part] += w[bent] @ through
        return slope

    def _parts(self, points: int) -> list[slice]:
        bent = len(self.bent)
        size = max(1, BENT_NUMBERS // max(1, bent))
        return [slice(first, first + size) for first in range(0, points if bent else 0, size)]

    def _bent(self, x: Float[Tensor, " n"]) -> Float[Tensor, "bent n"]:
        w, c = (number[self.bent][:, None] for number in self.network[:2])
        return torch.addcmul(c, w, x).relu_()


def _tiles(x: Float[Tensor, "b i j"]) -> list[tuple[int, slice]]:
    starts = range(0, x.shape[2] if x.shape[1] else 0, TILE_COLUMNS)
    return [
        (row, slice(start, min(start + TILE_COLUMNS, x.shape[2]))) for row in range(x.shape[0]) for start in starts
    ]
