"""Gated short convolution: each channel is filtered over the last few tokens, between two gates."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.core.checks import need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.mixers._short_convolution import ShortConvolution
from ordinate.ops.shift import bidirectional
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class GatedShortConvolutionState(MixerState):
    """Recurrent state of a gated short convolution, of constant size.

    Args:
        recent: the last gated inputs, as many as the convolution looks back.
    """

    recent: Float[Tensor, "b reach width"]


class GatedShortConvolution(SequenceMixer[GatedShortConvolutionState]):
    """Gated short convolution: a causal convolution of each channel, with a multiplicative gate before and behind it.

        B, C, x = u W_in;   y = (C * conv(B * x)) W_out

    u is the input, and conv filters each channel over the last `taps` tokens, so that a layer looks no further back
    than that.

    Args:
        width: columns of the model.
        taps: tokens that the convolution spans, the current one included.
        bias: whether both projections and the convolution have biases.
    Source: Liquid AI 2025, LFM2 Technical Report, https://arxiv.org/abs/2511.23404, and the module `Lfm2ShortConv`
        of transformers, version 5.
    Departs: the bidirectional form (our extension) adds the convolutions in both directions, with the same weights,
        between the gates.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(self, *, width: int, taps: int = 3, bias: bool = False) -> None:
        super().__init__()
        need_positive_counts(width=width)
        self.project = nn.Linear(width, 3 * width, bias=bias)
        self.convolution = ShortConvolution(width, taps, bias=bias, activation=nn.Identity())
        self.out = nn.Linear(width, width, bias=bias)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: GatedShortConvolutionState | None
    ) -> tuple[Tokens, GatedShortConvolutionState | None]:
        """Filter forwards, or in the bidirectional form in both directions."""
        before, behind, inner = self.project(x).chunk(3, -1)
        inner = before * inner
        if real is not None and self.project.bias is not None:
            # the convolution would carry the bias of padding into the first tokens
            inner = inner.masked_fill(~real[..., None], 0)
        if not at.where.is_causal:
            both = bidirectional(lambda x: self.convolution(x, None)[0], inner, real)
            return self.out(behind * both), None
        inner, recent = self.convolution(inner, None if state is None else state.recent)
        return self.out(behind * inner), GatedShortConvolutionState(recent)
