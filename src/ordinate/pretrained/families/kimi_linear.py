"""Kimi Linear."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need, shown
from ordinate.mixers._delta_rule import DeltaRuleSizes
from ordinate.mixers.kimi_delta_attention import KimiDeltaAttention
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.config_types import check_types
from ordinate.pretrained.deepseek_moe_like import CHOSEN_GROUPS, FIRST, GROUPS, INNER, SCALE, SHARED
from ordinate.pretrained.grouped_rows import Reshaped, StackedRows
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES, LINEAR, TYPES, HybridLike, WithoutPositions
from ordinate.pretrained.latent_like import CONTENT, QUERY_RANK, RANK, ROTATED, VALUE
from ordinate.pretrained.latent_moe_like import LatentMoeLike
from ordinate.pretrained.mlp_layer_types import KINDS, layer_kinds, layers_without_experts
from ordinate.pretrained.moe_like import CHOSEN, COUNT
from ordinate.pretrained.published_names import renamed_rules
from ordinate.pretrained.short_filters import WHOLE, filter_activation, filter_rule, whole_filters
from ordinate.pretrained.sliding_windows import FULL

HEADS, HEAD_DIM, TAPS = "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"
"""The keys of the heads of Kimi Delta Attention, of their channels, and of the span of its convolution."""
PUBLISHED = "linear_attn_config"
"""The key of the same in published files, which counts where it is there."""
PUBLISHED_SIZES: Mapping[str, str] = {"num_heads": HEADS, "head_dim": HEAD_DIM, "short_conv_kernel_size": TAPS}
"""Names of these keys in it."""
PUBLISHED_TYPES: Mapping[str, str] = {"full_attn_layers": FULL, "kda_layers": LINEAR}
"""Names in it of the layers of each type, counted from 1; of a layer that both name, the last counts."""
EVERY = 4
"""One in so many layers has attention in a config.json that does not say which."""
EXPERT_LAYER = "block_sparse_moe"
"""Name of router and experts in the layer of a published checkpoint."""
EXPERT_NAMES: Mapping[str, str] = {".gate_proj.": ".w1.", ".up_proj.": ".w3.", ".down_proj.": ".w2."}
"""Parts of names of tensors of experts in other families, and those here."""
FORGET = ("A_log", "dt_bias", "f_a_proj", "f_b_proj")
"""Names of tensors of the decay, which models of transformers have in a part of its own."""
LATENT_SIZES = frozenset({RANK, QUERY_RANK, CONTENT, ROTATED, VALUE})


class KimiLinear(WithoutPositions, HybridLike[DeltaRuleSizes], LatentMoeLike):
    """Kimi Linear: Kimi Delta Attention in most layers, latent attention in the others, experts as in DeepSeek-V3.

    No layer encodes positions. The head is never tied to the token table.

    Source: Kimi Team 2025, Kimi Linear, https://arxiv.org/abs/2510.26692.
    """

    model_type = "kimi_linear"
    base_class = "KimiLinearModel"
    causal_lm_class = "KimiLinearForCausalLM"
    # transformers has no other
    heads = ()
    recurrent = KimiDeltaAttention
    recurrent_mixer = "Kimi Delta Attention"
    recurrent_name = "self_attn"
    recurrent_keys = frozenset({HEADS, HEAD_DIM, TAPS})
    attention_sizes = ATTENTION_SIZES | LATENT_SIZES
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 163_840,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 27,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 1_048_576,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "pad_token_id": 163_839,
        "attention_bias": False,
        RANK: 512,
        QUERY_RANK: None,
        CONTENT: 128,
        ROTATED: 64,
        VALUE: 128,
        INNER: 1024,
        CHOSEN: 8,
        SHARED: 1,
        COUNT: 256,
        SCALE: 2.446,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        FIRST: 1,
        KINDS: None,
        "norm_topk_prob": True,
        TYPES: None,
        HEADS: 32,
        HEAD_DIM: 128,
        TAPS: 4,
        PUBLISHED: {},
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "model_max_length": "max_position_embeddings",
        "moe_renormalize": "norm_topk_prob",
        "num_expert_group": GROUPS,
        "num_experts": COUNT,
        "num_experts_per_token": CHOSEN,
        "num_shared_experts": SHARED,
    }
    count_key = COUNT
    expert_sizes = frozenset(
        {COUNT, CHOSEN, INNER, SHARED, "num_experts", "num_experts_per_token", "num_shared_experts"}
    )
    optional_sizes = frozenset({"intermediate_size", *expert_sizes, *recurrent_keys, *attention_sizes})
    expert_layer = EXPERT_LAYER
    renamed: ClassVar[Mapping[str, str]] = {f"self_attn.{name}": f"self_attn.forget_gate.{name}" for name in FORGET}
    wide = (*LatentMoeLike.wide, ".decay.bias")

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Complete the sizes and the types of layers from those of published files."""
        made, told = super().complete_config(config, names), config[PUBLISHED]
        own = {ours: told[name] for name, ours in PUBLISHED_SIZES.items() if name in told}
        check_types(own, self.defaults)
        if made[TYPES] is None and PUBLISHED_TYPES.keys() <= told.keys():
            own[TYPES] = _published_types(told, made["num_hidden_layers"])
        return {**made, **own, **whole_filters(names)}

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        layers = range(config["num_hidden_layers"])
        return [FULL if layer > 0 and layer % EVERY == 0 else LINEAR for layer in layers]

    def shape(self, config: Mapping[str, Any]) -> Shape:
        return super().shape(CheckpointConfig({**config, "tie_word_embeddings": False}))

    def score_scale(self, config: Mapping[str, Any]) -> float | None:
        return None

    def sizes_of(self, mixer: KimiDeltaAttention) -> DeltaRuleSizes:
        return mixer.sizes

    def recurrent_spec(self, config: Mapping[str, Any]) -> str:
        activation = filter_activation(self, config)
        options = [f"heads={config[HEADS]}", f"head_dim={config[HEAD_DIM]}", f"taps={config[TAPS]}"]
        options += [f"norm_eps={config[self.eps_key]}"]
        options += [] if activation == "silu" else [f"activation={activation}"]
        return "kimi_delta_attention:" + ",".join(options)

    def recurrent_config(self, shape: Shape, sizes: DeltaRuleSizes) -> dict[str, Any]:
        inner = GATED.get(cast(Any, shape.feedforward))
        need(
            (sizes.activation, sizes.norm_eps, sizes.gate_rank) == (inner, shape.norm_eps, sizes.key_width)
            and not sizes.negative_eigenvalues,
            f"Kimi Delta Attention of a {self.model_type} has the norm_eps of the model, the activation of its "
            "feedforward, rank=head_dim and no negative_eigenvalues",
            f"got norm_eps={shape.norm_eps}, feedforward={shape.feedforward!r} and {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        return {HEADS: sizes.heads, HEAD_DIM: sizes.key_width, TAPS: sizes.taps}

    def recurrent_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        heads, size, whole = sizes.heads, sizes.key_width, self.settings.get(WHOLE, False)
        rows, parts = (heads * size,) * 3, tuple(f"{there}.{part}_proj.weight" for part in "qkv")
        named = {"rate": "b_proj", "step.0": "f_a_proj", "step.1": "f_b_proj", "gate.0": "g_a_proj"}
        named |= {"gate.1": "g_b_proj", "out": "o_proj"}
        return [
            StackedRows(f"{here}.project.weight", parts, rows),
            filter_rule(f"{here}.convolution.weight", there, rows, whole=whole),
            Reshaped(f"{here}.decay.log_rate", (f"{there}.A_log",), (heads,), (1, 1, heads, 1)),
            Reshaped(f"{here}.decay.bias", (f"{there}.dt_bias",), (heads, size), (heads * size,)),
            TensorRule(f"{here}.norm_scale", (f"{there}.o_norm.weight",)),
            *(TensorRule(f"{here}.{ours}.weight", (f"{there}.{name}.weight",)) for ours, name in named.items()),
        ]

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return layers_without_experts(config, config[FIRST], exact=True)

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return layer_kinds(shape, layers)

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        return renamed_rules(super().expert_rules(shape, layer), {".mlp.": f".{EXPERT_LAYER}.", **EXPERT_NAMES})

    def shared_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        return renamed_rules(super().shared_rules(shape, layer), {".mlp.": f".{EXPERT_LAYER}."})


def _published_types(told: Mapping[str, Any], layers: int) -> list[str]:
    """Return the types of the layers that the lists of published files name, each of them in one or both."""
    must = f"{' and '.join(PUBLISHED_TYPES)} of {PUBLISHED} must be lists of all layers, 1 to {layers}"
    came, remedy = f"got {', '.join(shown(told[name]) for name in PUBLISHED_TYPES)}", "correct them"
    given = [told[name] for name in PUBLISHED_TYPES]
    numbers = [layer for part in given if isinstance(part, list) for layer in part]
    fits = all(isinstance(part, list) for part in given) and all(type(layer) is int for layer in numbers)
    need(fits and len({*numbers}) == layers and min(numbers) >= 1 and max(numbers) <= layers, must, came, remedy)
    found = {layer: kind for name, kind in PUBLISHED_TYPES.items() for layer in told[name]}
    return [found[layer] for layer in range(1, layers + 1)]
