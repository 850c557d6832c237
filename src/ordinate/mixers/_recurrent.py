"""Base class of the RNN, GRU and LSTM mixers, computed by PyTorch's recurrent kernels."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ordinate.core.checks import need_positive
from ordinate.core.replaced_parameters import replaced
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import without_autocast
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.double_backward import untraceable
from ordinate.schemes._scheme import Placed

Channels = Float[Tensor, "b channels"]
Parts = tuple[Float[Tensor, "b width"], ...]


@dataclass(frozen=True, eq=False)
class RecurrentState(MixerState):
    """State of a recurrent cell.

    Args:
        h: hidden state; for an LSTM the hidden state and the cell state.
    """

    h: Float[Tensor, "b parts width"]


class RecurrentMixer(SequenceMixer[RecurrentState]):
    """Recurrent network as a mixer: hidden states of a PyTorch cell, followed by an output projection.

        h_t = cell(x_t, h_(t-1)),   y = h W_O

    In the bidirectional form the same cell also runs from the last token to the first, giving h'. The two halves of
    its channels are swapped before the sum: y = (h + swap(h')) W_O. Otherwise a sequence and its reverse would give
    the same results.

    Initialisation as in Keras: input weights Glorot-uniform, recurrent weights orthogonal for each gate, biases 0.
    Computed in float32 or wider, by PyTorch's kernels; token by token in transforms of torch.func and forward mode,
    for which these lack rules.

    Must: `step`.

    Args:
        cell_class: nn.RNN, nn.GRU or nn.LSTM.
        width: columns of the model and size of the hidden state.
        state_vectors: number of state vectors: 2 for an LSTM (hidden and cell state), otherwise 1.
    """

    supported_hooks = frozenset({"remap_positions", "embed"})
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(self, cell_class: Callable[..., nn.RNNBase], width: int, state_vectors: int = 1) -> None:
        super().__init__()
        need_positive("width", width)
        self.cell, self.state_vectors = cell_class(width, width, batch_first=True), state_vectors
        self.out = nn.Linear(width, width, bias=False)
        with torch.no_grad():
            for weight, draw in (("weight_ih_l0", nn.init.xavier_uniform_), ("weight_hh_l0", nn.init.orthogonal_)):
                for gate in self.cell.get_parameter(weight).split(width):
                    draw(gate)
            for bias in ("bias_ih_l0", "bias_hh_l0"):
                self.cell.get_parameter(bias).zero_()

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
        if real is None:
            y, h = self._run(x, state.h)
            return y, RecurrentState(h)
        order = (~real).long().argsort(dim=1, stable=True)[..., None].expand_as(x)
        # pack_padded_sequence needs lengths of 1 or more; the state of a row of padding only is discarded below
        lengths = real.sum(1)
        packed = pack_padded_sequence(x.gather(1, order), lengths.clamp(min=1).cpu(), True, enforce_sorted=False)
        output, h = self._run(packed, state.h)
        y, _ = pad_packed_sequence(output, True, total_length=x.shape[1])
        return torch.zeros_like(y).scatter(1, order, y), RecurrentState(
            torch.where(lengths[:, None, None] > 0, h, state.h)
        )

    def _read_stepwise(
        self, x: Tokens, real: Bool[Tensor, "b n"] | None, state: RecurrentState
    ) -> tuple[Tokens, RecurrentState]:
        # attributes: `get_parameter` refuses the tensors that functional_call puts in the place of parameters
        weights = [
            getattr(self.cell, f"{kind}_{side}_l0").to(x.dtype)
            for side in ("ih", "hh")
            for kind in ("weight", "bias")
        ]
        parts, outs = state.h.unbind(1), []
        for place, token in enumerate(linear(x, *weights[:2]).unbind(1)):
            after = self.step(token, linear(parts[0], *weights[2:]), parts)
            if real is not None:
                there = real[:, place, None]
                after = tuple(torch.where(there, new, old) for new, old in zip(after, parts, strict=True))
            parts = after
            outs.append(parts[0])
        return torch.stack(outs, 1), RecurrentState(torch.stack(parts, 1))

    def _run(self, x: Any, h: Float[Tensor, "b parts width"]) -> tuple[Any, Float[Tensor, "b parts width"]]:
        weights, cell = list(self.cell.parameters()), self.cell
        if any(weight.dtype != h.dtype for weight in weights):
            cell = replaced(cell, [weight.to(h.dtype) for weight in weights])
        # PyTorch expects the axes (layers, batch, width), and the two states of an LSTM as a tuple
        before = tuple(part[None].contiguous() for part in h.unbind(1))
        # cuDNN has a backward pass in training mode only
        plain = h.device.type == "cuda" and torch.is_grad_enabled() and not self.training
        with torch.backends.cudnn.flags(enabled=False) if plain else nullcontext():
            y, after = cell(x, before if self.state_vectors > 1 else before[0])
        return y, torch.cat(after if self.state_vectors > 1 else (after,)).transpose(0, 1)
