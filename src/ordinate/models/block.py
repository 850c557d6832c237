"""Transformer layers: pre-norm, post-norm, norms after or around branches, of normalised residuals, parallel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import KVCache, Mixer, MixerState
from ordinate.mixers._projections import AttentionMixer
from ordinate.models.layer_inputs import LayerInput, LayerInputBranch
from ordinate.models.pair_state import PairState
from ordinate.schemes._scheme import Placed
from ordinate.schemes.none import NoPosition

NormPosition = Literal["pre", "post", "res_post", "peri", "residual", "parallel", "shared"]


class LayerScale(nn.Module):
    """LayerScale: multiply each column of a branch by a learned factor, initially small.

    Source: Touvron et al. 2021, Going deeper with Image Transformers, equation 4, https://arxiv.org/abs/2103.17239.
    """

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), float(scale)))

    def forward(self, x: Tokens) -> Tokens:
        """Return x with each channel multiplied by its own learned factor."""
        return x * self.weight


class BranchDropout(nn.Dropout):
    """Dropout of the output of a branch, times a factor that is the same for all branches (Granite).

    Args:
        p: dropout probability.
        factor: what the output is multiplied by; with 1 it is left as it is.
    """

    def __init__(self, p: float, factor: float) -> None:
        super().__init__(p)
        self.factor = factor

    def forward(self, input: Tokens) -> Tokens:
        """Return what is added to the residual stream."""
        kept = super().forward(input)
        return kept if self.factor == 1 else kept * self.factor


@dataclass(frozen=True, eq=False)
class CrossAttentionInput:
    """Cross-attention input of one layer.

    Args:
        key_values: keys and values of the context sequence, as projected by this layer.
        at: the scheme at the positions of both sequences.
    """

    key_values: KVCache
    at: Placed

    def attend(self, cross: AttentionMixer, x: Tokens) -> Tokens:
        """Compute cross-attention with queries from `x`."""
        return cross.cross_attention(x, self.key_values, self.at)


class Block(nn.Module):
    """Pre-norm transformer layer: mixer, optional cross-attention, feed-forward, each with a residual connection.

        x = x + mixer(norm(x));   x = x + cross(norm(x), source);   x = x + feedforward(norm(x))

    With `add_mixer` a second mixer reads the input of the first, without a scheme, and the two outputs are added.
    With `add_layer_input` a last branch reads an input e of the layer, x = x + branch(x, e), and with `add_factor`
    the layer returns x times a number.

    Args:
        mixer: token mixer, such as self-attention.
        feedforward: feed-forward network, applied to each token; None: the layer has none (Mamba).
        norm: builds a norm for a given width.
        width: columns of the model.
        dropout: dropout probability of the output of each branch.
        layer_scale: initial value of LayerScale for the mixer and the feed-forward; None: no LayerScale.
        cross: cross-attention; None: none.
        residual_scale: factor of the output of each branch as it is added to the residual stream.
    Source: Xiong et al. 2020, On Layer Normalization in the Transformer Architecture, figure 1b,
        https://arxiv.org/abs/2002.04745.
    """

    norms_inputs: ClassVar[bool] = True
    """Whether a norm precedes each branch, or the sum that ends it."""
    norms_outputs: ClassVar[bool] = False
    """Whether the output of each branch is normalised before it is added."""
    factor: Tensor | None

    def __init__(
        self,
        mixer: Mixer[Any],
        feedforward: nn.Module | None,
        norm: Callable[[int], nn.Module],
        width: int,
        dropout: float,
        layer_scale: float | None = None,
        cross: AttentionMixer | None = None,
        residual_scale: float = 1.0,
    ) -> None:
        super().__init__()
        before, after = (norm if has else _no_norm for has in (self.norms_inputs, self.norms_outputs))
        self.mixer_norm, self.mixer, self.mixer_out_norm = before(width), mixer, after(width)
        if cross is not None:
            self.cross_norm: nn.Module = before(width)
            self.cross = cross
            self.cross_out_norm = after(width)
        fed = feedforward is not None
        self.feedforward_norm: nn.Module = before(width) if fed else nn.Identity()
        self.feedforward, self.feedforward_out_norm = feedforward, after(width) if fed else nn.Identity()
        self.mixer_scale, self.feedforward_scale = (
            nn.Identity() if layer_scale is None or not has else LayerScale(width, layer_scale) for has in (True, fed)
        )
        self.dropout = BranchDropout(dropout, residual_scale)
        self.second_mixer: Mixer[Any] | None = None
        self.layer_input: LayerInputBranch | None = None
        self.register_buffer("factor", None)

    def add_mixer(self, mixer: Mixer[Any]) -> None:
        """Give the layer a second mixer, whose output is added to that of the first."""
        self.second_mixer, self.without_positions = mixer, NoPosition()

    def add_layer_input(self, branch: LayerInputBranch) -> None:
        """Give the layer a last branch, which reads an input of the layer beside the residual stream."""
        self.layer_input = branch

    def add_factor(self) -> None:
        """Give the layer a number, 1 at first, that its output is multiplied by, and that no gradient trains."""
        self.factor = torch.ones(1)

    @property
    def mixers(self) -> tuple[Mixer[Any], ...]:
        """The mixers of the layer, one or two."""
        return (self.mixer,) if self.second_mixer is None else (self.mixer, self.second_mixer)

    def mix(
        self, x: Tokens, at: Placed, state: MixerState | None = None, shared: MixerState | None = None
    ) -> tuple[Tokens, MixerState | None]:
        """Output of the mixer, or the sum of those of both, and the new state; `shared`: as in `forward`."""
        if shared is not None:
            return self.mixer(x, at, state, shared=shared)
        if self.second_mixer is None:
            return self.mixer(x, at, state)
        first, second = (state.first, state.second) if isinstance(state, PairState) else (None, None)
        mixed, first = self.mixer(x, at, first)
        added, second = self.second_mixer(x, Placed(self.without_positions, at.where), second)
        return mixed + added, PairState(first, second)

    def mixer_branch(
        self, x: Tokens, at: Placed, state: MixerState | None = None, shared: MixerState | None = None
    ) -> tuple[Tokens, MixerState | None]:
        """Output of the mixer branch, and the new state of the mixer; `shared`: as in `forward`."""
        mixed, state = self.mix(self.mixer_norm(x), at, state, shared)
        return self.dropout(self.mixer_scale(mixed)), state

    def feedforward_branch(self, x: Tokens) -> Tokens:
        """Output of the feed-forward branch."""
        fed = cast(nn.Module, self.feedforward)(self.feedforward_norm(x))
        return self.dropout(self.feedforward_scale(fed))

    def before_branch(self, norm: nn.Module, x: Tokens) -> tuple[Tokens, Tokens]:
        """Residual stream that a branch is added to, and the input of the branch: the normalised stream."""
        return x, norm(x)

    def after_branch(self, norm: nn.Module, x: Tokens, branch: Tokens) -> Tokens:
        """Add the output of a branch to the residual stream."""
        return x + self.dropout(branch)

    def forward(
        self,
        x: Tokens,
        at: Placed,
        state: MixerState | None = None,
        cross_input: CrossAttentionInput | None = None,
        *,
        shared: MixerState | None = None,
        layer_input: LayerInput | None = None,
    ) -> tuple[Tokens, MixerState | None]:
        """Apply the layer; return the tokens and the new state of the mixer.

        Args:
            x: token vectors.
            at: the scheme at the geometry of the tokens.
            state: state of the mixer after the previous tokens; None: there are none.
            cross_input: input of the cross-attention; None: there is none.
            shared: keys and values of an earlier layer, for a mixer that has none of its own.
            layer_input: input of the layer beside the tokens, with `add_layer_input`.
        """
        x, state = self.branches(x, at, state, cross_input, shared)
        if self.layer_input is not None:
            x = x + self.dropout(self.layer_input(x, layer_input))
        return (x if self.factor is None else x * self.factor), state

    def branches(
        self,
        x: Tokens,
        at: Placed,
        state: MixerState | None,
        cross_input: CrossAttentionInput | None,
        shared: MixerState | None,
    ) -> tuple[Tokens, MixerState | None]:
        """Apply the mixer, the cross-attention and the feed-forward; arguments are those of `forward`."""
        x, read = self.before_branch(self.mixer_norm, x)
        mixed, state = self.mix(read, at, state, shared)
        x = self.after_branch(self.mixer_norm, x, self.mixer_out_norm(self.mixer_scale(mixed)))
        if cross_input is not None:
            x, read = self.before_branch(self.cross_norm, x)
            x = self.after_branch(self.cross_norm, x, self.cross_out_norm(cross_input.attend(self.cross, read)))
        if self.feedforward is not None:
            x, read = self.before_branch(self.feedforward_norm, x)
            fed = self.feedforward_out_norm(self.feedforward_scale(self.feedforward(read)))
            x = self.after_branch(self.feedforward_norm, x, fed)
        return x, state


def _no_norm(width: int) -> nn.Module:
    return nn.Identity()


def run_blocks(
    blocks: Sequence[Callable[..., tuple[Tokens, MixerState | None]]],
    x: Tokens,
    places: Sequence[Placed],
    states: Sequence[MixerState | None] | None,
    shared_keys: Sequence[int] = (),
) -> tuple[Tokens, list[MixerState | None]]:
    """Run a stack of layers; return the output and the new state of each layer.

    Args:
        blocks: the layers.
        x: input of the first layer.
        places: for each layer, its scheme at the geometry of the tokens.
        states: state of each layer after the previous tokens; None: no states are kept.
        shared_keys: for each layer, the layer whose keys and values it attends to; (): each attends to its own.
    """
    after: list[MixerState | None] = []
    read = {owner for layer, owner in enumerate(shared_keys) if owner != layer}
    # torch.compile cannot trace a call of dict[...]
    kept: dict[int, MixerState | None] = {}
    for layer, block in enumerate(blocks):
        given = kept[shared_keys[layer]] if shared_keys and shared_keys[layer] != layer else None
        more = {} if given is None else {"shared": given}
        x, state = block(x, places[layer], states[layer] if states else None, **more)
        kept.update({layer: state} if layer in read else {})
        after.append(None if states is None else state)
    return x, after


class PostBlock(Block):
    """Post-norm transformer layer (original transformer, BERT): norms after the residual sums.

        x = norm(x + mixer(x));   x = norm(x + cross(x, source));   x = norm(x + feedforward(x))

    Source: Vaswani et al. 2017, section 3.1, https://arxiv.org/abs/1706.03762.
    """

    def before_branch(self, norm: nn.Module, x: Tokens) -> tuple[Tokens, Tokens]:
        """Residual stream that a branch is added to, and the input of the branch: the stream itself."""
        return x, x

    def after_branch(self, norm: nn.Module, x: Tokens, branch: Tokens) -> Tokens:
        """Add the output of a branch and normalise the sum."""
        return norm(x + self.dropout(branch))


class PeriBlock(Block):
    """Transformer layer with a norm before and another after each branch (Gemma 2 and 3).

        x = x + norm'(mixer(norm(x)));   x = x + norm'(cross(norm(x), source));   x = x + norm'(feedforward(norm(x)))

    Source: Kim et al. 2025, Peri-LN, equation 3, https://arxiv.org/abs/2502.02732.
    """

    norms_outputs = True


class ResPostBlock(Block):
    """Transformer layer with a norm after each branch, before it is added (Swin V2, OLMo 2).

        x = x + norm(mixer(x));   x = x + norm(cross(x, source));   x = x + norm(feedforward(x))

    Source: Liu et al. 2022, Swin Transformer V2, section 3.2, https://arxiv.org/abs/2111.09883; OLMo 2, section 3.3,
        https://arxiv.org/abs/2501.00656.
    """

    norms_inputs, norms_outputs = False, True


class NormedResidualBlock(Block):
    """Transformer layer whose residual connections carry the normalised input of each branch (Bloom, if so set).

        n = norm(x);   x = n + mixer(n);   n = norm(x);   x = n + cross(n, source);   n = norm(x);
        x = n + feedforward(n)

    Source: `apply_residual_connection_post_layernorm` of Megatron-LM, https://github.com/NVIDIA/Megatron-LM, and of
        Bloom in transformers.
    """

    def before_branch(self, norm: nn.Module, x: Tokens) -> tuple[Tokens, Tokens]:
        """Residual stream that a branch is added to, and the input of the branch: both are the normalised stream."""
        normed = norm(x)
        return normed, normed


class ParallelBlock(Block):
    """Parallel transformer layer: all branches read the same input, each through its own norm (GPT-NeoX).

        x = x + mixer(norm(x)) + cross(norm'(x), source) + feedforward(norm"(x))

    Source: Black et al. 2022, GPT-NeoX-20B, section 2.1.2, https://arxiv.org/abs/2204.06745.
    """

    def branches(
        self,
        x: Tokens,
        at: Placed,
        state: MixerState | None,
        cross_input: CrossAttentionInput | None,
        shared: MixerState | None,
    ) -> tuple[Tokens, MixerState | None]:
        """Apply the branches; see `Block.branches`."""
        mixed, state = self.mixer_branch(x, at, state, shared)
        if cross_input is not None:
            mixed = mixed + self.dropout(cross_input.attend(self.cross, self.cross_norm(x)))
        return x + mixed + self.feedforward_branch(x), state


class SharedNormParallelBlock(Block):
    """Parallel transformer layer with one norm shared by all branches (GPT-J).

        n = norm(x);   x = x + mixer(n) + cross(n, source) + feedforward(n)

    Source: Wang and Komatsuzaki 2021, GPT-J-6B, https://github.com/kingoflolz/mesh-transformer-jax.
    """

    def __init__(
        self,
        mixer: Mixer[Any],
        feedforward: nn.Module,
        norm: Callable[[int], nn.Module],
        width: int,
        *rest: Any,
    ) -> None:
        super().__init__(mixer, feedforward, norm, width, *rest)
        # the shared norm is registered once, as mixer_norm: further names would appear in checkpoints
        self.cross_norm: nn.Module = nn.Identity()
        self.feedforward_norm: nn.Module = nn.Identity()

    def branches(
        self,
        x: Tokens,
        at: Placed,
        state: MixerState | None,
        cross_input: CrossAttentionInput | None,
        shared: MixerState | None,
    ) -> tuple[Tokens, MixerState | None]:
        """Apply the branches; see `Block.branches`."""
        normed = self.mixer_norm(x)
        mixed, state = self.mix(normed, at, state, shared)
        if cross_input is not None:
            mixed = mixed + cross_input.attend(self.cross, normed)
        fed = self.feedforward_scale(cast(nn.Module, self.feedforward)(normed))
        mixed = self.mixer_scale(mixed)
        return x + self.dropout(mixed) + self.dropout(fed), state


BLOCK_CLASSES: dict[NormPosition, type[Block]] = {
    "pre": Block,
    "post": PostBlock,
    "res_post": ResPostBlock,
    "peri": PeriBlock,
    "residual": NormedResidualBlock,
    "parallel": ParallelBlock,
    "shared": SharedNormParallelBlock,
}
