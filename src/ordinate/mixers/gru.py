"""A recurrent network with gates."""

from torch import nn

from ordinate.recurrent import Recurrent


class Gru(Recurrent):
    """Read token by token; gates decide how much of what was read stays, and how much of it counts now.

        r = sigmoid(x_t W_r + h U_r + b_r),   z = sigmoid(x_t W_z + h U_z + b_z)
        n = tanh(x_t W_n + b_n + r * (h U_n + c_n))
        h_t = (1 - z) * n + z * h,   y = h W_O,   h = h_(t-1)

    Args:
        width: columns of the model.
    Source: Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate after the product with U_n as in
        cuDNN and PyTorch.
    Departs: W_O; the form from both sides has one cell for both directions.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__(nn.GRU, width)
