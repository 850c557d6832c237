"""Trinity."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import CHOSEN, INNER, DeepseekMoeLike
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import MoeLike
from ordinate.pretrained.rope_parameters import DEFAULT_THETA, NONE, rotating_layers_config
from ordinate.pretrained.sliding_windows import every_nth_whole, layer_types, layer_windows

COUNT, SHARED = "num_experts", "num_shared_experts"
"""The keys of the number of experts, and of the widths of an expert that the shared network has."""
FIRST, EVERY, SCALED = "num_dense_layers", "global_attn_every_n_layers", "mup_enabled"
"""The keys of the number of first layers without experts, of n where every n-th layer has no window, and of whether
token embeddings are multiplied by the root of the width."""


class Afmoe(DeepseekMoeLike):
    """Trinity: gated attention, RoPE and windows in most layers and neither in the others, experts with sigmoids.

    Source: Arcee AI, Trinity-Mini, https://huggingface.co/arcee-ai/Trinity-Mini; the plan of the layers is that of
        Yang et al. 2025, https://arxiv.org/abs/2501.18795.
    """

    model_type = "afmoe"
    base_class = "AfmoeModel"
    causal_lm_class = "AfmoeForCausalLM"
    # transformers has no other
    heads = ()
    count_key, shared_key, scale_key = COUNT, SHARED, "route_scale"
    router = "router.gate"
    choice_bias_name = "expert_bias"
    expert_sizes = frozenset({COUNT, CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    aliases: ClassVar[Mapping[str, str]] = {}
    null_is_false = frozenset({SCALED})
    wide = (".choice_bias",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 200_192,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 16,
        "num_key_value_heads": None,
        "head_dim": 128,
        "max_position_embeddings": 16_384,
        "rms_norm_eps": 1e-5,
        "sliding_window": 1024,
        "layer_types": None,
        "attention_bias": False,
        INNER: 1408,
        FIRST: 1,
        COUNT: 64,
        CHOSEN: 6,
        SHARED: 2,
        "route_scale": 1.0,
        EVERY: 4,
        SCALED: False,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True
    output_gate, gate_name = True, "gate_proj"
    norm_position = "peri"
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_norm": "input_layernorm",
        "mixer_out_norm": "post_attention_layernorm",
        "feedforward_norm": "pre_mlp_layernorm",
        "feedforward_out_norm": "post_mlp_layernorm",
    }

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        rope = super().scheme(config, head_width)
        return ",".join(NONE if window is None else rope for window in self.windows(config))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters, _ = rotating_layers_config(self.model_type, shape, head_width, DEFAULT_THETA)
        return {"rope_parameters": parameters}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(every_nth_whole(config, EVERY))

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        # transformers needs a number, even where no layer has a window
        window = found["sliding_window"] or self.defaults["sliding_window"]
        return {"sliding_window": window, "layer_types": found["layer_types"]}

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"embedding_scale": config["hidden_size"] ** 0.5} if config[SCALED] else {}

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        return {SCALED: shape.embedding_scale != 1}

    def choice(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"scores": self.scores_of_experts, "choice_bias": True}

    def choice_config(self, options: ExpertOptions) -> dict[str, Any]:
        must = f"an {self.model_type} has experts with normalise=True, a choice_bias and one group"
        fits = options.normalise and options.choice_bias and options.groups == 1
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return {}

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(range(min(config[FIRST], config["num_hidden_layers"])))

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return {FIRST: len(layers)}

    def expert_count(self, config: Mapping[str, Any]) -> int:
        return MoeLike.expert_count(self, config)
