"""Base class of decoders with gated short convolutions in some layers and softmax attention in the others."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.mixers.gated_short_convolution import GatedShortConvolution
from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import LAYER_PLACEHOLDER, TensorRule, linear_rules
from ordinate.pretrained.config_types import check_types
from ordinate.pretrained.grouped_rows import ChannelFilters
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES, EARLIER, LINEAR, TYPES, HybridLike
from ordinate.pretrained.published_names import renamed_rules
from ordinate.pretrained.rope_parameters import NONE
from ordinate.pretrained.sliding_windows import FULL

CONVOLUTION = "conv"
"""The type of layers with a gated short convolution."""
SPAN, BIAS = "conv_L_cache", "conv_bias"
"""The keys of the tokens that a convolution spans, and of whether it and its projections have biases."""
TIED = "tie_word_embeddings"
"""The key of whether the head is tied to the token table."""
ACTIVATION = "hidden_act"
ATTENTION_NAMES: Mapping[str, str] = {".self_attn.o_proj.": ".self_attn.out_proj."}
"""Parts of names of tensors of attention in other families, and those here."""
FEEDFORWARD_NAMES: Mapping[str, str] = {
    ".mlp.": ".feed_forward.",
    ".gate_proj.weight": ".w1.weight",
    ".up_proj.weight": ".w3.weight",
    ".down_proj.weight": ".w2.weight",
}
"""Parts of names of tensors of feed-forward networks and of experts in other families, and those here."""


@dataclass(frozen=True)
class ConvolutionSizes:
    """Sizes and options of a gated short convolution.

    Args:
        taps: tokens that the convolution spans.
        bias: whether it and its projections have biases.
    """

    taps: int
    bias: bool


class Lfm2Like(HybridLike[ConvolutionSizes]):
    """Decoders like LFM2: gated short convolutions in some layers, attention with QK-norm in the others.

    Must: as `LlamaLike`, and `usual_types`.
    May: `earlier` and `attention_names`.
    """

    # transformers has no other
    heads = ()
    usual: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 65_536,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": None,
        "max_position_embeddings": 128_000,
        "norm_eps": 1e-5,
        "pad_token_id": 0,
        TIED: True,
        "rope_parameters": None,
        "rope_theta": 1e6,
        SPAN: 3,
        BIAS: False,
        TYPES: None,
    }
    """Default values that these families share."""
    earlier: ClassVar[Mapping[str, str]] = {"tie_embedding": TIED}
    """Earlier names of keys, which count where they are there, and their later names."""
    recurrent = GatedShortConvolution
    recurrent_mixer = "gated short convolution"
    recurrent_name = "conv"
    recurrent_keys = frozenset({SPAN})
    optional_sizes = recurrent_keys | ATTENTION_SIZES
    qk_norm = True
    qk_norms = ("q_layernorm", "k_layernorm")
    eps_key = "norm_eps"
    norms: ClassVar[Mapping[str, str]] = {"mixer_norm": "operator_norm", "feedforward_norm": "ffn_norm"}
    final_norm = "embedding_norm"
    attention_names: ClassVar[Mapping[str, str]] = ATTENTION_NAMES
    """Parts of names of tensors of attention in other families, and in these."""
    gates: ClassVar[Mapping[str, FeedForwardKind]] = {"silu": "swiglu"}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read earlier names of keys, and add the activation, which is the same whatever config.json says."""
        early = {later: config[name] for name, later in self.earlier.items() if name in config}
        check_types(early, self.defaults)
        return {**super().complete_config(config, names), **early, ACTIVATION: "silu"}

    def types(self, config: Mapping[str, Any]) -> list[str]:
        """Return the types of the layers; raise a ValueError for others than the two."""
        given = self.usual_types(config) if config[TYPES] is None else config[TYPES]
        own = {**{old: kind for old, kind in EARLIER.items() if kind == FULL}, FULL: FULL, CONVOLUTION: LINEAR}
        must, remedy = f"{TYPES} must be {CONVOLUTION} or {FULL}", "correct it, or load another checkpoint"
        need(set(given) <= own.keys(), must, f"got {shown(given)}", remedy)
        return [own[kind] for kind in given]

    def type_config(self, types: Sequence[str]) -> dict[str, Any]:
        return {TYPES: [CONVOLUTION if kind == LINEAR else kind for kind in types]}

    def config(self, shape: Shape) -> dict[str, Any]:
        made = super().config(shape)
        usual = shape.bindable_sizes["head_width"] == shape.width // shape.heads
        # the key is none of theirs, but counts where it is there
        absent = {ACTIVATION, *(("head_dim",) if usual else ())}
        return {name: value for name, value in made.items() if name not in absent}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        # without attention, sizes of heads may say anything
        return super().scheme(config, head_width) if FULL in self.types(config) else NONE

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        return {} if shape.scheme_spec == NONE else super().scheme_config(shape, head_width)

    def recurrent_spec(self, config: Mapping[str, Any]) -> str:
        return f"gated_short_convolution:taps={config[SPAN]},bias={str(config[BIAS]).lower()}"

    def sizes_of(self, mixer: GatedShortConvolution) -> ConvolutionSizes:
        return ConvolutionSizes(mixer.convolution.weight.shape[1], mixer.convolution.bias is not None)

    def recurrent_config(self, shape: Shape, sizes: ConvolutionSizes) -> dict[str, Any]:
        return {SPAN: sizes.taps, BIAS: sizes.bias}

    def recurrent_rules(self, sizes: ConvolutionSizes, there: str, here: str) -> Sequence[TensorRule]:
        bias = TensorRule(f"{here}.convolution.bias", (f"{there}.conv.bias",))
        return [
            *linear_rules(f"{here}.project", f"{there}.in_proj", bias=sizes.bias),
            *linear_rules(f"{here}.out", f"{there}.out_proj", bias=sizes.bias),
            ChannelFilters(f"{here}.convolution.weight", (f"{there}.conv.weight",)),
            *([bias] if sizes.bias else []),
        ]

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        return renamed_rules(super().attention_rules(shape), self.attention_names)

    def feedforward_rules(self, shape: Shape, layer: str = LAYER_PLACEHOLDER) -> Sequence[TensorRule]:
        return renamed_rules(super().feedforward_rules(shape, layer), FEEDFORWARD_NAMES)
