"""Continuous position embeddings: an MLP of the position, added to the token embeddings."""

from itertools import pairwise
from typing import cast

import torch
from torch import nn

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Positions, Tokens
from ordinate.core.tensors import in_float64, on_device
from ordinate.ops.mlp_bias import mlp
from ordinate.schemes._scheme import Scheme


class Continuous(Scheme):
    """Add an MLP of the position, which may be any real number, to the token embeddings.

        x[p] += W_L silu(... silu(W_1 (p / unit) + b_1) ...) + b_L

    The MLP interpolates between the positions seen in training, so positions may be times, ages or distances. It is
    smooth: positions that differ by much less than `unit` are distinguishable only after training.

    Enters at: token embeddings.
    Args:
        width: model width.
        max_length: position that is scaled to 1 unless `unit` is given; larger positions are supported too [tokens].
        unit: position that is scaled to 1 [tokens]; None: max_length. bio-attention calls it `divide`; its default is
            1.
        hidden: width of the hidden layers; None: the model width.
        depth: number of linear layers.
        scale: multiplies weight and bias of the last layer at initialisation; should match the magnitude of the token
            embeddings.
    Raises:
        ValueError: neither unit nor max_length is given, or fewer than two layers, which would be linear.
    Source: LearnedContinuous of the package bio-attention, https://github.com/gdewael/bio-attention; initialised as
        linear layers of PyTorch.
    Departs: the MLP is computed in float64. No normalisation layers.
    """

    shift_invariant = False
    citation = """@software{dewaele2025bioattention,
  title = {bio-attention},
  author = {De Waele, Gaetan},
  year = {2025},
  url = {https://github.com/gdewael/bio-attention}
}"""

    def __init__(
        self,
        *,
        width: int,
        max_length: int | None = None,
        unit: float | None = None,
        hidden: int | None = None,
        depth: int = 3,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        need(
            unit is not None or max_length is not None,
            "continuous needs the position that is scaled to 1",
            "got neither unit nor max_length",
            "give unit, a number of tokens",
        )
        if max_length is not None:
            need_positive("max_length", max_length)
        self.unit = float(unit if unit is not None else max_length or 0)
        hidden = width if hidden is None else hidden
        for name, value in (("width", width), ("unit", self.unit), ("hidden", hidden), ("scale", scale)):
            need_positive(name, value)
        need(depth > 1, "continuous needs at least two layers", f"got {depth}", "for a linear function use scalar")
        sizes = [1, *[hidden] * (depth - 1), width]
        self.network = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        with torch.no_grad():
            for parameter in self.network[-1].parameters():
                parameter.mul_(scale)

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the output of the MLP."""
        layers = [cast(nn.Linear, layer) for layer in self.network]
        made = mlp(in_float64(pos[..., :1]) / self.unit, layers, nn.functional.silu)
        return x + on_device(made, x.dtype, x.device)
