"""Gated DeltaNet: the delta rule with data-dependent decay."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Tokens
from ordinate.mixers._delta_rule import DeltaRuleMixer, DeltaRuleSizes
from ordinate.mixers._gated_delta_options import GatedDeltaOptions
from ordinate.mixers._step_decay import StepDecay
from ordinate.ops.scalar_decay import LogDecays

# channels of a head's values for each channel of its keys, as published
RATIO = 2


class GatedDeltaNet(DeltaRuleMixer):
    """Gated DeltaNet: the delta rule with a data-dependent decay of each head's state.

        q, k = unit(silu(conv(x W_q))), unit(silu(conv(x W_k)));   v = silu(conv(x W_v));   beta = sigmoid(x W_b)
        w = -e^a softplus(x W_a + b)                                                           (log decay)
        S_t = e^{w_t} (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t;   y_t = q_t S_t / sqrt(d)     (for each head)
        out = W_o (RMS norm of each head(y) * silu(x W_g))

    unit(x) = x / |x|, and conv is a causal convolution of each channel over the last `taps` tokens. The variant may
    have another function in the place of silu behind conv.

    Args:
        width: columns of the model.
        heads: heads.
        key_width: channels of a head's queries and keys, d; None: 0.75 width / heads rounded down, as published.
        value_ratio: channels of a head's values for each channel of its keys.
        taps: tokens that the short convolution spans, the current one included.
        gate: whether the output is multiplied by silu(x W_g).
        negative_eigenvalues: whether beta = 2 sigmoid(x W_b), with which a state can change its sign.
        variant: further options: fewer heads of queries and keys, the epsilon of the norm, channels of values that
            are no multiple of those of keys, another activation of the convolution. On a command line
            `gated_deltanet:variant.key_heads=2`.
    Raises:
        ValueError: sizes that are not positive, key heads that do not divide the heads, or a ratio beside the
            channels of values.
    Source: Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks, https://arxiv.org/abs/2412.06464, section 3, and
        the layer of https://github.com/fla-org/flash-linear-attention; e^a and b initialised as there: uniform up to
        16, and so that softplus(b) is log-uniform between 0.001 and 0.1.
    Departs: the filters of the convolution are initialised as those of `torch.nn.Conv1d`. The bidirectional form (our
        extension) runs in both directions with the same weights and adds the two results.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        key_width: int | None = None,
        value_ratio: int = RATIO,
        taps: int = 4,
        gate: bool = True,
        negative_eigenvalues: bool = False,
        variant: GatedDeltaOptions | None = None,
    ) -> None:
        variant = GatedDeltaOptions() if variant is None else variant
        for name, size in (("width", width), ("heads", heads), ("value_ratio", value_ratio)):
            need_positive(name, size)
        size = _usual_key_width(width, heads) if key_width is None else key_width
        must = "value_ratio has no effect beside variant.value_width"
        need(variant.value_width is None or value_ratio == RATIO, must, f"got {value_ratio}", "leave one of them out")
        values = value_ratio * size if variant.value_width is None else variant.value_width
        own = width, heads, size, values, taps, gate, negative_eigenvalues
        super().__init__(DeltaRuleSizes(*own, variant.key_heads, variant.norm_eps, variant.activation))
        self.step = nn.Linear(width, heads, bias=False)
        self.decay = StepDecay(heads, (0.0, 16.0))

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, with the channels of a head's queries and keys."""
        width = options["key_width"]
        usual = _usual_key_width(options["width"], options["heads"])
        return {**options, "key_width": usual if width is None else width}

    def log_decay(self, x: Tokens) -> LogDecays:
        """Return the log decay of each head and token."""
        return self.decay(self.step(x))[1]


def _usual_key_width(width: int, heads: int) -> int:
    """Return the channels of the queries and keys of a head, as published."""
    return max(1, 3 * width // (4 * heads))
