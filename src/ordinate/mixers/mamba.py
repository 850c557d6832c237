"""Mamba: a selective state space model, with a step size of each channel and token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear, silu, softplus

from ordinate.core.checks import need, need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import at_least_float32
from ordinate.mixers._mamba_options import MambaOptions
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.mixers._step_decay import draw_step_bias
from ordinate.ops.decay import decay_rate
from ordinate.ops.head_norm import rms_norm
from ordinate.ops.selective_scan import selective_scan
from ordinate.ops.shift import bidirectional
from ordinate.schemes._scheme import Placed

# columns of the model for each number from which step sizes are computed, as published
COLUMNS = 16
# channels for each column of the model
EXPAND = 2


@dataclass(frozen=True, eq=False)
class MambaState(MixerState):
    """Recurrent state of Mamba, of constant size.

    Args:
        recent: the last projected inputs, as many as the short convolution looks back.
        states: the states of each channel.
    """

    recent: Float[Tensor, "b reach channels"]
    states: Float[Tensor, "b states channels"]


class Mamba(SequenceMixer[MambaState]):
    """Mamba: a selective state space model (SSM) for each channel, with a data-dependent step size, B and C.

        x', z = u W;   x = silu(conv(x'));   s, B, C = x W_x;   D_t = softplus(s W_s + b)
        h_t = e^{-D_t e^a} * h_{t-1} + D_t x_t B_t;   y_t = C_t . h_t + d x_t           (for each channel)
        out = W_o (y * silu(z))

    u is the input, and conv a causal convolution of each channel over the last `taps` tokens, with a bias. Each of
    the states of a channel has a decay rate e^a of its own; all channels share B and C.

    Args:
        width: columns of the model.
        expand: channels, for each column of the model.
        states: states of each channel.
        rank: numbers of s, from which the step sizes of all channels are computed; None: a sixteenth of the columns,
            rounded up, as published.
        taps: tokens that the short convolution spans, the current one included.
        variant: further options: biases, another activation of the convolution, norms of s, B and C, channels that
            are no multiple of the model's columns. On a command line `mamba:variant.norm=plain`.
    Raises:
        ValueError: sizes that are not above zero, or `expand` beside `variant.inner`.
    Source: Gu and Dao 2023, Mamba, https://arxiv.org/abs/2312.00752, algorithm 2 and section 3.4, and the module of
        https://github.com/state-spaces/mamba, with its initialisation: e^a = 1, 2, 3, ..., softplus(b) log-uniform
        between 0.001 and 0.1, W_s uniform within 1 / sqrt(rank), d = 1. The norms are those of Falcon-Mamba
        (https://arxiv.org/abs/2410.05355) and Jamba (https://arxiv.org/abs/2403.19887).
    Departs: the bidirectional form (our extension) runs in both directions with the same weights and adds the two
        results.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(
        self,
        *,
        width: int,
        expand: int = EXPAND,
        states: int = 16,
        rank: int | None = None,
        taps: int = 4,
        variant: MambaOptions | None = None,
    ) -> None:
        super().__init__()
        self.variant = variant = MambaOptions() if variant is None else variant
        need_positive_counts(width=width, expand=expand, states=states)
        rank = _usual_rank(width) if rank is None else rank
        need_positive_counts(rank=rank)
        must = "expand has no effect beside variant.inner"
        need(variant.inner is None or expand == EXPAND, must, f"got {expand}", "leave one of them out")
        inner = expand * width if variant.inner is None else variant.inner
        self.sizes = [rank, states, states]
        self.project = nn.Linear(width, 2 * inner, bias=variant.bias)
        self.convolution = variant.make_convolution(inner, taps)
        self.select = nn.Linear(inner, sum(self.sizes), bias=False)
        # not nn.Linear, whose weights the model would reinitialise
        self.step = nn.Parameter(torch.empty(inner, rank).uniform_(-(rank**-0.5), rank**-0.5))
        self.step_bias = nn.Parameter(draw_step_bias(inner))
        self.log_rate = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        scaled = self.sizes if variant.norm == "scaled" else []
        self.norm_scales = nn.ParameterList(nn.Parameter(torch.ones(size)) for size in scaled)
        self.out = nn.Linear(inner, width, bias=variant.bias)

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, with the numbers of s."""
        made = dict(options)
        if made["rank"] is None:
            made["rank"] = _usual_rank(made["width"])
        return made

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: MambaState | None
    ) -> tuple[Tokens, MambaState | None]:
        """Run forwards, or in the bidirectional form in both directions."""
        if at.where.is_causal:
            return self._read(x, real, state)
        return bidirectional(lambda x: self._read(x, real, None)[0], x, real), None

    def _read(
        self, u: Tokens, real: Bool[Tensor, "b n"] | None, state: MambaState | None
    ) -> tuple[Tokens, MambaState]:
        mixed, gate = self.project(u).chunk(2, -1)
        mixed, recent = self.convolution.of_tokens(mixed, real, None if state is None else state.recent)
        step, b, c = self._selected(mixed)
        x, rate = at_least_float32(mixed), decay_rate(at_least_float32(self.log_rate)).mT.contiguous()
        start = x.new_zeros(len(x), *rate.shape) if state is None else state.states
        y, states = selective_scan(x * step, step, rate, b, c, start)
        y = (y + at_least_float32(self.skip) * x) * silu(at_least_float32(gate))
        return self.out(y.to(u.dtype)), MambaState(recent, states)

    def _selected(
        self, x: Float[Tensor, "b n channels"]
    ) -> tuple[Float[Tensor, "b n channels"], Float[Tensor, "b n states"], Float[Tensor, "b n states"]]:
        """Return the step sizes, B and C of each token, in float32 or wider."""
        parts = at_least_float32(self.select(x)).split(self.sizes, -1)
        if self.variant.norm != "none":
            parts = [rms_norm(part, self.variant.epsilon) for part in parts]
        if self.norm_scales:
            parts = [part * at_least_float32(scale) for part, scale in zip(parts, self.norm_scales, strict=True)]
        low, b, c = parts
        step = at_least_float32(linear(low.to(x.dtype), self.step))
        return softplus(step + at_least_float32(self.step_bias)), b, c


def _usual_rank(width: int) -> int:
    """Return the numbers of s in a model of this width."""
    return -(-width // COLUMNS)
