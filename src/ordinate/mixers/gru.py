"""Gated recurrent unit (GRU) as a token mixer."""

from torch import nn

from ordinate.mixers._recurrent import RecurrentMixer


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
        super().__init__(nn.GRU, width)
