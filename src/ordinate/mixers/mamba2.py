"""Mamba-2: a selective state space model with one decay per head and token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import silu

from ordinate.core.checks import need, need_positive, need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import at_least_float32
from ordinate.mixers._mamba2_options import NO_SCALES, Mamba2Options
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.mixers._step_decay import StepDecay
from ordinate.ops.head_norm import rms_norm
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.scalar_decay import scalar_decay_attention
from ordinate.ops.shift import bidirectional
from ordinate.schemes._scheme import Placed

# channels of a head in the published models
HEAD_DIM = 64
# channels of all heads together for each column of the model
EXPAND = 2


@dataclass(frozen=True, eq=False)
class Mamba2State(MixerState):
    """Recurrent state of Mamba-2, of constant size.

    Args:
        recent: the last projected inputs, as many as the short convolution looks back.
        matrices: state of each head, for each state and channel.
    """

    recent: Float[Tensor, "b reach channels"]
    matrices: Matrices


class Mamba2(SequenceMixer[Mamba2State]):
    """Mamba-2: a selective state space model (SSM) per head, with a data-dependent step size and decay.

        z, x', B', C', s = u W;   x, B, C = silu(conv(x', B', C'));   D_t = softplus(s_t + b)
        S_t = e^{-e^a D_t} S_{t-1} + B_t^T (D_t x_t);   y_t = C_t S_t + d x_t           (for each head)
        out = W_o (RMS norm of all channels(y * silu(z)))

    u is the input, and conv a causal convolution of each channel over the last `taps` tokens, with a bias. All heads
    of a group share B and C, as heads share keys and queries in multi-query attention.

    Args:
        width: columns of the model.
        expand: channels of all heads together, for each column of the model.
        head_dim: channels of a head; None: the largest divisor of all channels up to 64, as published.
        states: states of each channel, N.
        groups: groups of heads; each has its own B and C, and its own norm.
        taps: tokens that the short convolution spans, the current one included.
        variant: further options: biases, the norm and its place, limits of D, another activation of
            the convolution, channels that are no multiple of the model's columns, factors of what is projected. On a
            command line `mamba2:variant.bias=true,variant.least_step=0.001`.
    Raises:
        ValueError: sizes that do not divide each other.
    Source: Dao and Gu 2024, Transformers are SSMs, https://arxiv.org/abs/2405.21060, sections 6 and 7, and the module
        of https://github.com/state-spaces/mamba, with its initialisation: e^a uniform between 1 and 16, softplus(b)
        log-uniform between 0.001 and 0.1, d = 1.
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
        head_dim: int | None = None,
        states: int = 128,
        groups: int = 1,
        taps: int = 4,
        variant: Mamba2Options | None = None,
    ) -> None:
        super().__init__()
        self.variant = variant = Mamba2Options() if variant is None else variant
        need_positive_counts(width=width, expand=expand, states=states, groups=groups)
        must = "expand has no effect beside variant.inner"
        need(variant.inner is None or expand == EXPAND, must, f"got {expand}", "leave one of them out")
        inner = expand * width if variant.inner is None else variant.inner
        if head_dim is None:
            head_dim = _usual_head_dim(inner)
        need_positive("head_dim", head_dim)
        need(
            inner % head_dim == 0,
            f"head_dim must divide {'expand x width' if variant.inner is None else 'variant.inner'}",
            f"got {head_dim} and {inner}",
            "choose one that does, such as 64",
        )
        self.heads = inner // head_dim
        need(
            self.heads % groups == 0,
            "groups must divide the heads",
            f"got {groups} and {self.heads}",
            "choose groups that do, such as 1",
        )
        self.groups, self.widths = groups, [inner, groups * states, groups * states]
        self.project = nn.Linear(width, inner + sum(self.widths) + self.heads, bias=variant.bias)
        self.convolution = variant.make_convolution(sum(self.widths), taps)
        self.decay = StepDecay(self.heads, (1.0, 16.0), variant.limits)
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm_scale = nn.Parameter(torch.ones(inner)) if variant.norm else None
        self.out = nn.Linear(inner, width, bias=variant.bias)

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, with the channels of a head."""
        made = dict(options)
        if made["head_dim"] is None:
            given = None if made["variant"] is None else made["variant"].inner
            made["head_dim"] = _usual_head_dim(made["expand"] * made["width"] if given is None else given)
        return made

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Mamba2State | None
    ) -> tuple[Tokens, Mamba2State | None]:
        """Run forwards, or in the bidirectional form in both directions."""
        if at.where.is_causal:
            return self._read(x, real, state)
        return bidirectional(lambda x: self._read(x, real, None)[0], x, real), None

    def _read(
        self, u: Tokens, real: Bool[Tensor, "b n"] | None, state: Mamba2State | None
    ) -> tuple[Tokens, Mamba2State]:
        gate, mixed, steps = self._projected(u).split([self.widths[0], sum(self.widths), self.heads], -1)
        mixed, recent = self.convolution.of_tokens(mixed, real, None if state is None else state.recent)
        x, b, c = at_least_float32(mixed).split(self.widths, -1)
        x = rearrange(x, "b n (h d) -> b h n d", h=self.heads)
        b, c = (rearrange(part, "b n (g d) -> b g n d", g=self.groups) for part in (b, c))
        step, logs = self.decay(steps)
        start = x.new_zeros(*x.shape[:2], b.shape[3], x.shape[3]) if state is None else state.matrices
        y, matrices = scalar_decay_attention(c, b, x * step[..., None], logs, start)
        y = y + at_least_float32(self.skip)[:, None, None] * x
        y, gate = rearrange(y, "b h n d -> b n h d").flatten(2), silu(at_least_float32(gate))
        y = self._normed(y) * gate if self.variant.norm_before_gate else self._normed(y * gate)
        out, factor = self.out(y.to(u.dtype)), self.variant.out_scale
        return out if factor == 1 else out * factor, Mamba2State(recent, matrices)

    def _projected(self, u: Tokens) -> Float[Tensor, "b n parts"]:
        """Project the input, and multiply each part by its factor."""
        parts, scales = self.project(u), self.variant.scales
        if scales == NO_SCALES:
            return parts
        split = parts.split([self.widths[0], *self.widths, self.heads], -1)
        return torch.cat([part * factor for part, factor in zip(split, scales, strict=True)], -1)

    def _normed(self, y: Tokens) -> Tokens:
        """Normalise the channels of each group, if the mixer has a norm."""
        if self.norm_scale is None:
            return y
        y = rms_norm(y.unflatten(2, (self.groups, -1)), self.variant.norm_eps).flatten(2)
        return y * at_least_float32(self.norm_scale)


def _usual_head_dim(inner: int) -> int:
    """Return the channels of a head of so many channels of all heads together."""
    return max(size for size in range(1, HEAD_DIM + 1) if inner % size == 0)
