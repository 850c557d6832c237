"""Plain recurrent networks as mixers: one token after another, by PyTorch's own kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ordinate.checks import need_positive
from ordinate.mixer import State
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens


@dataclass(frozen=True, eq=False)
class Carried(State):
    """What a recurrent cell hands on from token to token.

    Args:
        h: its numbers: what it says, and for an LSTM what it keeps to itself beside that.
    """

    h: Float[Tensor, "b parts width"]


class Recurrent(SequenceMixer[Carried]):
    """A cell reads the tokens in their order; what it says after each, projected, is the result.

        h_t = cell(x_t, h_(t-1)),   y = h W_O

    Where nothing hides the future, the same cell also reads from the last token to the first. What it says then is
    added with its halves exchanged: y = (h + exchange(h')) W_O. Otherwise a text and its mirror image would give the
    same.

    The cell is born as in Keras: weights of the input uniform after Glorot, those of the state orthogonal gate by
    gate, biases 0. It computes in float32 at least.

    Args:
        kind: nn.RNN, nn.GRU or nn.LSTM.
        width: columns of the model and of the cell.
        parts: how many vectors it carries.
    """

    honours = frozenset({"place", "embed"})
    equivariant = False
    usual_scheme = "none"

    def __init__(self, kind: Callable[..., nn.RNNBase], width: int, parts: int = 1) -> None:
        super().__init__()
        need_positive("width", width)
        self.cell, self.parts = kind(width, width, batch_first=True), parts
        self.out = nn.Linear(width, width, bias=False)
        with torch.no_grad():
            for weight, draw in (("weight_ih_l0", nn.init.xavier_uniform_), ("weight_hh_l0", nn.init.orthogonal_)):
                for gate in self.cell.get_parameter(weight).split(width):
                    draw(gate)
            for bias in ("bias_ih_l0", "bias_hh_l0"):
                self.cell.get_parameter(bias).zero_()

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Carried | None
    ) -> tuple[Tokens, Carried]:
        """Read from left to right, and from right to left too where nothing hides the future."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        state = Carried(wide.new_zeros(len(x), self.parts, x.shape[2])) if state is None else state
        if not x.numel():
            return x, state
        with torch.autocast(x.device.type, enabled=False):
            y, state = self._read(wide, real, state)
            if not at.where.hides_future:
                back, _ = self._read(wide.flip(1), None if real is None else real.flip(1), Carried(state.h * 0))
                y = y + back.flip(1).roll(x.shape[2] // 2, 2)
        return self.out(y.to(x.dtype)), state

    def _read(self, x: Tokens, real: Bool[Tensor, "b n"] | None, state: Carried) -> tuple[Tokens, Carried]:
        if real is None:
            y, h = self._run(x, state.h)
            return y, Carried(h)
        order = (~real).long().argsort(dim=1, stable=True)[..., None].expand_as(x)
        # a packed row holds one token at least; what a row of padding gives is thrown away
        lengths = real.sum(1)
        packed = pack_padded_sequence(x.gather(1, order), lengths.clamp(min=1).cpu(), True, enforce_sorted=False)
        said, h = self._run(packed, state.h)
        y, _ = pad_packed_sequence(said, True, total_length=x.shape[1])
        return torch.zeros_like(y).scatter(1, order, y), Carried(torch.where(lengths[:, None, None] > 0, h, state.h))

    def _run(self, x: Any, h: Float[Tensor, "b parts width"]) -> tuple[Any, Float[Tensor, "b parts width"]]:
        weights = {name: weight.to(h.dtype) for name, weight in self.cell.named_parameters()}
        # pytorch wants the axes (layers, batch, width), and the two parts of an LSTM one by one
        before = tuple(part[None].contiguous() for part in h.unbind(1))
        y, after = functional_call(self.cell, weights, (x, before if self.parts > 1 else before[0]))
        return y, torch.cat(after if self.parts > 1 else (after,)).transpose(0, 1)
