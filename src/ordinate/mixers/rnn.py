"""A plain recurrent network."""

from functools import partial

import torch
from torch import nn

from ordinate.recurrent import Recurrent


class Rnn(Recurrent):
    """Read token by token; what was read so far is one vector, bent by tanh after each.

        h_t = tanh(x_t W + h_(t-1) U + b),   y = h W_O

    Everything of the past must pass through `width` numbers, and its gradient through all steps between, where it
    fades or grows. A contrast, not a contender.

    Args:
        width: columns of the model.
        identity: begin with U = 1 and bend by relu, so that what was read stays until something changes it (IRNN).
    Source: Elman 1990, Finding Structure in Time, https://doi.org/10.1207/s15516709cog1402_1; `identity` from Le,
        Jaitly and Hinton 2015, https://arxiv.org/abs/1504.00941.
    Departs: W_O; weights of the state begin orthogonal; the form from both sides has one cell for both directions.
    """

    def __init__(self, *, width: int, identity: bool = False) -> None:
        super().__init__(partial(nn.RNN, nonlinearity="relu" if identity else "tanh"), width)
        if identity:
            nn.init.eye_(self.cell.get_parameter("weight_hh_l0"))
            with torch.no_grad():
                self.cell.get_parameter("weight_ih_l0").normal_(std=0.001)
