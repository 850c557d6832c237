"""Base class of the RNN, GRU and LSTM mixers, computed by PyTorch's recurrent kernels."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ordinate.core.checks import need_positive
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import without_autocast
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.double_backward import untraceable
from ordinate.schemes._scheme import Placed

Channels = Float[Tensor, "b channels"]
Parts = tuple[Float[Tensor, "b width"], ...]
Hidden = Float[Tensor, "b parts width"]
Weight = Float[Tensor, "gates width"]
Bias = Float[Tensor, " gates"]
Real = Bool[Tensor, "b n"]
# of PyTorch: `torch.lstm` and the like
Kernel = Callable[..., tuple[Tensor, ...]]
Recurrence = Callable[[Tokens, Hidden, Weight, Weight, Bias, Bias, Real | None], tuple[Tokens, Hidden]]


@dataclass(frozen=True, eq=False)
class RecurrentState(MixerState):
    """State of a recurrent cell.

    Args:
        h: hidden state; for an LSTM the hidden state and the cell state.
    """

    h: Hidden


class RecurrentMixer(SequenceMixer[RecurrentState]):
    """Recurrent network as a mixer: hidden states of a PyTorch cell, followed by an output projection.

        h_t = cell(x_t, h_(t-1)),   y = h W_O

    In the bidirectional form the same cell also runs from the last token to the first, giving h'. The two halves of
    its channels are swapped before the sum: y = (h + swap(h')) W_O. Otherwise a sequence and its reverse would give
    the same results.

    Initialisation as in Keras: input weights Glorot-uniform, recurrent weights orthogonal for each gate, biases 0.
    Computed in float32 or wider, by PyTorch's kernels; token by token in transforms of torch.func and forward mode,
    for which these lack rules.

    Must: `recurrence` and `step`.

    Args:
        mode: as in `torch.nn.RNNBase`: RNN_TANH, RNN_RELU, LSTM or GRU.
        width: columns of the model and size of the hidden state.
        state_vectors: number of state vectors: 2 for an LSTM (hidden and cell state), otherwise 1.
    """

    supported_hooks = frozenset({"remap_positions", "embed"})
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(self, mode: str, width: int, state_vectors: int = 1) -> None:
        super().__init__()
        need_positive("width", width)
        # not nn.LSTM and the like, which torch.compile refuses
        self.cell, self.state_vectors = nn.RNNBase(mode, width, width, batch_first=True), state_vectors
        self.out = nn.Linear(width, width, bias=False)
        with torch.no_grad():
            for weight, draw in (("weight_ih_l0", nn.init.xavier_uniform_), ("weight_hh_l0", nn.init.orthogonal_)):
                for gate in self.cell.get_parameter(weight).split(width):
                    draw(gate)
            for bias in ("bias_ih_l0", "bias_hh_l0"):
                self.cell.get_parameter(bias).zero_()

    @abstractmethod
    def recurrence(self) -> Recurrence:
        """Return the function that runs PyTorch's kernel, made by `recurrence_by`."""

    @abstractmethod
    def step(self, from_token: Channels, from_state: Channels, parts: Parts) -> Parts:
        """Return the state vectors after a token, by the formula.

        Args:
            from_token: product of the token and the input weights, plus the bias, of all gates.
            from_state: product of the hidden state and the recurrent weights, plus the bias, of all gates.
            parts: the state vectors before the token.
        """

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: RecurrentState | None
    ) -> tuple[Tokens, RecurrentState]:
        """Run the cell forwards, and in the bidirectional form also backwards."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        state = RecurrentState(wide.new_zeros(len(x), self.state_vectors, x.shape[2])) if state is None else state
        if not x.numel():
            return x, state
        with without_autocast(x):
            y, state = self._read(wide, real, state)
            if not at.where.is_causal:
                back, _ = self._read(
                    wide.flip(1), None if real is None else real.flip(1), RecurrentState(state.h * 0)
                )
                y = y + back.flip(1).roll(x.shape[2] // 2, 2)
        return self.out(y.to(x.dtype)), state

    def _read(
        self, x: Tokens, real: Bool[Tensor, "b n"] | None, state: RecurrentState
    ) -> tuple[Tokens, RecurrentState]:
        if untraceable(x):
            return self._read_stepwise(x, real, state)
        y, h = self.recurrence()(x, state.h, *self._weights(x.dtype), real)
        return y, RecurrentState(h)

    def _read_stepwise(
        self, x: Tokens, real: Bool[Tensor, "b n"] | None, state: RecurrentState
    ) -> tuple[Tokens, RecurrentState]:
        weights = self._weights(x.dtype)
        parts, outs = state.h.unbind(1), []
        for place, token in enumerate(linear(x, weights[0], weights[2]).unbind(1)):
            after = self.step(token, linear(parts[0], weights[1], weights[3]), parts)
            if real is not None:
                there = real[:, place, None]
                after = tuple(torch.where(there, new, old) for new, old in zip(after, parts, strict=True))
            parts = after
            outs.append(parts[0])
        return torch.stack(outs, 1), RecurrentState(torch.stack(parts, 1))

    def _weights(self, dtype: torch.dtype) -> tuple[Weight, Weight, Bias, Bias]:
        # attributes: `get_parameter` refuses the tensors that functional_call puts in the place of parameters
        weight_ih, weight_hh, bias_ih, bias_hh = (
            getattr(self.cell, f"{name}_l0").to(dtype) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        return weight_ih, weight_hh, bias_ih, bias_hh


def recurrence_by(kernel: Kernel) -> Recurrence:
    """Return a function that runs a recurrent kernel of PyTorch; inside torch.compile it is a custom operator.

    It maps tokens, state and weights (of the input and of the state, then the biases) to the hidden state at each
    token and the state after the last one. `real` is False at padding, which is skipped; None: no padding.

    Args:
        kernel: `torch.rnn_tanh`, `torch.rnn_relu`, `torch.gru` or `torch.lstm`.
    """

    def run(
        x: Tokens, h: Hidden, weight_ih: Weight, weight_hh: Weight, bias_ih: Bias, bias_hh: Bias, real: Real | None
    ) -> tuple[Tokens, Hidden]:
        weights = [weight_ih, weight_hh, bias_ih, bias_hh]
        if real is not None:
            return _run_padded(kernel, x, h, weights, real)
        return _run(kernel, (x,), h, weights)

    run.__name__ = kernel.__name__
    return custom_operator("x", "h")(run)


def _run(kernel: Kernel, given: Sequence[Tensor], h: Hidden, weights: Sequence[Tensor]) -> tuple[Tensor, Hidden]:
    """Run the kernel over tokens (batch first), or over packed ones and their batch sizes."""
    # PyTorch expects the axes (layers, batch, width), and the two states of an LSTM as a list
    before = [part[None].contiguous() for part in h.unbind(1)]
    # biases, one layer, no dropout, whether a backward pass may follow (asked by cuDNN), one direction
    settings = True, 1, 0.0, torch.is_grad_enabled(), False
    batch_first = [True] if len(given) == 1 else []
    y, *after = kernel(*given, before if len(before) > 1 else before[0], weights, *settings, *batch_first)
    return y, torch.cat(after).transpose(0, 1)


def _run_padded(kernel: Kernel, x: Tokens, h: Hidden, weights: Sequence[Tensor], real: Real) -> tuple[Tokens, Hidden]:
    order = (~real).long().argsort(dim=1, stable=True)[..., None].expand_as(x)
    # pack_padded_sequence needs lengths of 1 or more; the state of a row of padding only is discarded below
    lengths = real.sum(1)
    packed = pack_padded_sequence(x.gather(1, order), lengths.clamp(min=1).cpu(), True, enforce_sorted=False)
    y, after = _run(kernel, packed[:2], h[packed.sorted_indices], weights)
    y, _ = pad_packed_sequence(PackedSequence(y, *packed[1:]), True, total_length=x.shape[1])
    after = torch.where(lengths[:, None, None] > 0, after[packed.unsorted_indices], h)
    return torch.zeros_like(y).scatter(1, order, y), after
