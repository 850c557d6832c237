"""Per-layer embeddings: an input of each layer that depends on the token itself (Gemma 3n, Gemma 4)."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.shapes import Ids, Tokens
from ordinate.ops.linear_layer import Linear

LayerInput = Float[Tensor, "b n columns"]


class LayerInputs(nn.Module):
    """Inputs of all layers, from token ids and token embeddings.

        e = (norm(P x / sqrt(width)) + sqrt(columns) table[id]) / sqrt(2),   for each layer its own P and table

    Args:
        vocabulary: vocabulary size.
        layers: number of layers.
        width: columns of the model.
        columns: columns of the input of a layer.
        norm: builds a norm for a given number of columns.
    Source: `Gemma4TextModel` of transformers; first in Gemma 3n, https://ai.google.dev/gemma/docs/gemma-3n.
    """

    def __init__(
        self, vocabulary: int, layers: int, width: int, columns: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.layers = layers
        self.table = nn.Embedding(vocabulary, layers * columns)
        self.project = Linear(width, layers * columns, bias=False)
        self.norm = norm(columns)

    def forward(self, ids: Ids, x: Tokens) -> Float[Tensor, "b n layers columns"]:
        """Return the input of each layer.

        Args:
            ids: token ids.
            x: token embeddings, without position embeddings.
        """
        found = self.table(ids).unflatten(-1, (self.layers, -1))
        found = found * nearest_number(found.shape[-1] ** 0.5, found.dtype)
        read = (self.project(x) * x.shape[-1] ** -0.5).unflatten(-1, (self.layers, -1))
        return (self.norm(read) + found) * 2**-0.5


class LayerInputBranch(nn.Module):
    """Residual branch of a layer that reads its own input e beside the residual stream.

        norm(W_2 (f(W_1 x) * e))

    Args:
        width: columns of the model.
        columns: columns of the input of the layer.
        activation: f.
        norm: builds a norm for a given number of columns.
    Source: as `LayerInputs`.
    """

    def __init__(
        self, width: int, columns: int, activation: Callable[[Tensor], Tensor], norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.widen, self.narrow = Linear(width, columns, bias=False), Linear(columns, width, bias=False)
        self.activation, self.norm = activation, norm(width)

    def forward(self, x: Tokens, given: LayerInput | None) -> Tokens:
        """Return the output of the branch; raise a ValueError without an input of the layer."""
        if given is None:
            raise ValueError("a layer with a layer_input_width needs its input; got none; run the whole model")
        return self.norm(self.narrow(self.activation(self.widen(x)) * given))


def nearest_number(value: float, kind: torch.dtype) -> float:
    """Return the nearest number of a floating-point type: 55.4 becomes 55.5 in bfloat16."""
    # the distance of neighbouring numbers of the type
    step = math.ldexp(torch.finfo(kind).eps / 2, math.frexp(value)[1])
    return round(value / step) * step
