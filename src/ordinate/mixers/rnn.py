"""Plain (Elman) recurrent network as a token mixer."""

import torch
from torch import nn

from ordinate.mixers._recurrent import Channels, Parts, Recurrence, RecurrentMixer, recurrence_by

_BY_TANH, _BY_RELU = recurrence_by(torch.rnn_tanh), recurrence_by(torch.rnn_relu)


class Rnn(RecurrentMixer):
    """Plain (Elman) recurrent network with tanh and an output projection.

        h_t = tanh(x_t W + h_(t-1) U + b),   y = h W_O

    All information about the past must fit into a hidden state of size `width`, and gradients vanish or explode over
    many steps. A baseline for contrast.

    Args:
        width: columns of the model.
        identity: initialise U with the identity and use ReLU, so that the hidden state persists at first (IRNN).
    Source: Elman 1990, Finding Structure in Time, https://doi.org/10.1207/s15516709cog1402_1; `identity` from Le,
        Jaitly and Hinton 2015, https://arxiv.org/abs/1504.00941.
    Departs: W_O; recurrent weights are initialised orthogonally; the bidirectional form uses one cell for both
        directions.
    """

    def __init__(self, *, width: int, identity: bool = False) -> None:
        super().__init__("RNN_RELU" if identity else "RNN_TANH", width)
        self.identity = identity
        if identity:
            nn.init.eye_(self.cell.get_parameter("weight_hh_l0"))
            with torch.no_grad():
                self.cell.get_parameter("weight_ih_l0").normal_(std=0.001)

    def recurrence(self) -> Recurrence:
        """Return the kernel of PyTorch."""
        return _BY_RELU if self.identity else _BY_TANH

    def step(self, from_token: Channels, from_state: Channels, parts: Parts) -> Parts:
        """Squash the sum of both products."""
        both = from_token + from_state
        return (both.relu() if self.identity else both.tanh(),)
