"""Convolution over neighbouring tokens, beside a layer (DeBERTa)."""

from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import Mixer, MixerState
from ordinate.models.block import CrossAttentionInput, PostBlock
from ordinate.schemes._scheme import Placed


class TokenConvolution(nn.Module):
    """Convolution over a token and its neighbours in the row, of its own document only.

        y_i = f(sum_m W_m x_(i + m - r) + b),   m = 0 .. 2r;   x = 0 in padding, in other documents and beyond the row

    Args:
        width: columns of the model.
        kernel: number of tokens, 2r + 1.
        groups: groups of columns, each computed from its own.
        activation: activation function, f.
    """

    def __init__(self, width: int, kernel: int, groups: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv = _WindowConvolution(width, width, kernel, groups=groups)
        self.activation = activation

    def forward(self, x: Tokens, where: Geometry) -> Tokens:
        """Convolve the tokens at this geometry."""
        kernel = self.conv.kernel_size[0]
        near = _windows(x, kernel, 0.0)
        if where.q_document is not None:
            own = where.q_document[..., None]
            same = (_windows(own, kernel, PADDING) == own[..., None]) & (own[..., None] != PADDING)
            # not a product: what stands in padding may be no number
            near = near.masked_fill(~same, 0.0)
        return self.activation(self.conv(near))


class _WindowConvolution(nn.Conv1d):
    """A convolution of windows, as made by `_windows`; parameters are those of PyTorch's module."""

    def forward(self, input: Float[Tensor, "b n columns kernel"]) -> Tokens:
        parts = input.unflatten(2, (self.groups, -1))
        weight = self.weight.unflatten(0, (self.groups, -1)).to(parts.dtype)
        return torch.einsum("bngik,goik->bngo", parts, weight).flatten(2) + cast(Tensor, self.bias)


def _windows(x: Tensor, kernel: int, outside: float) -> Tensor:
    """Return each token and its neighbours along a new last axis."""
    side = kernel // 2
    return nn.functional.pad(x, (0, 0, side, side), value=outside).unfold(1, kernel, 1)


class ConvolvedBlock(PostBlock):
    """Post-norm layer with a convolution beside it (the first layer of DeBERTa-v2).

        x = norm(layer(x) + f(conv(x)))

    Args:
        mixer, feedforward, norm, width, rest: those of `Block`.
        convolution: the convolution, with its activation function.
    Source: the published code of DeBERTa, version 2, https://github.com/microsoft/DeBERTa.
    """

    def __init__(
        self,
        mixer: Mixer[Any],
        feedforward: nn.Module,
        norm: Callable[[int], nn.Module],
        width: int,
        *rest: Any,
        convolution: TokenConvolution,
    ) -> None:
        super().__init__(mixer, feedforward, norm, width, *rest)
        self.convolution, self.convolution_norm = convolution, norm(width)

    def branches(
        self,
        x: Tokens,
        at: Placed,
        state: MixerState | None,
        cross_input: CrossAttentionInput | None,
        shared: MixerState | None,
    ) -> tuple[Tokens, MixerState | None]:
        """Apply the branches of the layer and the convolution; see `Block.branches`."""
        y, state = super().branches(x, at, state, cross_input, shared)
        return self.after_branch(self.convolution_norm, y, self.convolution(x, at.where)), state
