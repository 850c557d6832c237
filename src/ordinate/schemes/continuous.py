"""Continuous position embeddings: an MLP of the position, added to the token embeddings."""

from itertools import pairwise
from typing import cast

import torch
from torch import nn

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Positions, Tokens
from ordinate.ops.mlp_bias import mlp
from ordinate.schemes._scheme import Scheme


class Continuous(Scheme):
    """Add an MLP of the position, which may be any real number, to the token embeddings.

        x[p] += W_L silu(... silu(W_1 (p / unit) + b_1) ...) + b_L

    Between two positions of training stands a mixture of what was learned at both, so that times, ages and distances
    can be positions. The network is smooth: steps that are small beside `unit` it distinguishes only after training.

    Enters at: token embeddings.
    Args:
        width: columns of the model.
        max_length: the position that counts as 1 unless `unit` is given; those beyond are served too [tokens].
        unit: the position that counts as 1 [tokens]; None: max_length. bio-attention calls it `divide`, and takes 1.
        hidden: columns inside the network; None: as many as the model has.
        depth: matrices of the network.
        scale: multiplies the last matrix and its bias at initialisation; best the size of a token's numbers in the
            model.
    Raises:
        ValueError: neither unit nor max_length, or fewer than two layers, which make a straight line.
    Source: LearnedContinuous of the package bio-attention, https://github.com/gdewael/bio-attention; all its numbers
        are initialised as PyTorch's linear layers are.
    Departs: positions go through the network in float64. No norm inside.
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
        made = mlp(pos[..., :1].double() / self.unit, layers, nn.functional.silu)
        return x + made.to(x.dtype)
