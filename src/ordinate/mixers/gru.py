"""Gated recurrent unit (GRU) as a token mixer."""

import torch

from ordinate.mixers._recurrent import Channels, Parts, Recurrence, RecurrentMixer, recurrence_by

_RECURRENCE = recurrence_by(torch.gru)


class Gru(RecurrentMixer):
    """Gated recurrent unit (GRU) with an output projection.

        r = sigmoid(x_t W_r + h U_r + b_r),   z = sigmoid(x_t W_z + h U_z + b_z)
        n = tanh(x_t W_n + b_n + r * (h U_n + c_n))
        h_t = (1 - z) * n + z * h,   y = h W_O,   h = h_(t-1)

    Args:
        width: columns of the model.
    Source: Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate after the product with U_n as in
        cuDNN and PyTorch.
    Departs: W_O; the bidirectional form uses one cell for both directions.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__("GRU", width)

    def recurrence(self) -> Recurrence:
        """Return the kernel of PyTorch."""
        return _RECURRENCE

    def step(self, from_token: Channels, from_state: Channels, parts: Parts) -> Parts:
        """Replace a share of the state, which the gate z chooses."""
        (to_r, to_z, to_n), (of_r, of_z, of_n) = from_token.chunk(3, -1), from_state.chunk(3, -1)
        z = (to_z + of_z).sigmoid()
        return ((1 - z) * (to_n + (to_r + of_r).sigmoid() * of_n).tanh() + z * parts[0],)
