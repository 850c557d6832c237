"""A small network of the position, added to the tokens."""

from itertools import pairwise
from typing import cast

import torch
from torch import nn

from ordinate.checks import need, need_positive
from ordinate.ops.perceptron import perceptron
from ordinate.scheme import Scheme
from ordinate.shapes import Positions, Tokens


class Continuous(Scheme):
    """Add what a small trained network makes of the position, which may be any number.

        x[p] += W_L silu(... silu(W_1 (p / unit) + b_1) ...) + b_L

    Between two positions of training stands a mixture of what was learned at both, so that times, ages and distances
    can be positions. The network is smooth: steps that are small beside `unit` it tells apart only after training.

    Enters at: tokens.
    Args:
        width: columns of the model.
        max_length: the position that counts as 1 unless `unit` is given; those beyond are served too [tokens].
        unit: the position that counts as 1 [tokens]; None: max_length. bio-attention calls it `divide`, and takes 1.
        hidden: columns inside the network; None: as many as the model has.
        depth: matrices of the network.
        scale: multiplies the last matrix and its bias at birth; best the size of a token's numbers in the model.
    Raises:
        ValueError: neither unit nor max_length, or fewer than two layers, which make a straight line.
    Source: LearnedContinuous of the package bio-attention, https://github.com/gdewael/bio-attention; all its numbers
        are born as PyTorch's linear layers are.
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
            "continuous must know which position counts as 1",
            "got neither unit nor max_length",
            "give unit, a number of tokens",
        )
        self.unit = float(unit if unit is not None else max_length or 0)
        hidden = width if hidden is None else hidden
        for name, value in (("width", width), ("unit", self.unit), ("hidden", hidden), ("scale", scale)):
            need_positive(name, value)
        need(depth > 1, "continuous needs at least two layers", f"got {depth}", "one makes a line: take scalar")
        sizes = [1, *[hidden] * (depth - 1), width]
        self.network = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        with torch.no_grad():
            for parameter in self.network[-1].parameters():
                parameter.mul_(scale)

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the outcome of the network."""
        layers = [cast(nn.Linear, layer) for layer in self.network]
        made = perceptron(pos[..., :1].double() / self.unit, layers, nn.functional.silu)
        return x + made.to(x.dtype)
