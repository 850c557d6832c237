"""Long short-term memory (LSTM) as a token mixer."""

import torch

from ordinate.mixers._recurrent import Channels, Parts, Recurrence, RecurrentMixer, recurrence_by

_RECURRENCE = recurrence_by(torch.lstm)


class Lstm(RecurrentMixer):
    """Long short-term memory (LSTM) network with an output projection.

        i, f, o = sigmoid(x_t W_i + h U_i + b_i), likewise f and o;   g = tanh(x_t W_g + h U_g + b_g)
        c_t = f * c_(t-1) + i * g,   h_t = o * tanh(c_t),   y = h W_O,   h = h_(t-1)

    Args:
        width: columns of the model.
    Source: Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735, with the forget gate of Gers
        et al. 2000, https://doi.org/10.1162/089976600300015015, whose bias begins at 1 as in Jozefowicz et al. 2015,
        https://proceedings.mlr.press/v37/jozefowicz15.html.
    Departs: W_O; the bidirectional form uses one cell for both directions.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__("LSTM", width, state_vectors=2)
        with torch.no_grad():
            # PyTorch stacks the gates in the order i, f, g, o: this is the bias of the forget gate
            self.cell.get_parameter("bias_ih_l0")[width : 2 * width] = 1

    def recurrence(self) -> Recurrence:
        """Return the kernel of PyTorch."""
        return _RECURRENCE

    def step(self, from_token: Channels, from_state: Channels, parts: Parts) -> Parts:
        """Forget, write and read the cell state by the three gates."""
        i, f, g, o = (from_token + from_state).chunk(4, -1)
        cell = f.sigmoid() * parts[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell
