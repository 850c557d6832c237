"""gpt-oss."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, TransposedWeight, Weight, linear_rules
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike
from ordinate.pretrained.sliding_windows import every_nth_whole, layer_types, layer_windows

ROPE: Mapping[str, Any] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""The RoPE of a config.json without one."""
# without layer_types
EVERY = 2


class InterleavedGates(TensorRule):
    """Gates and values of each expert in turn in the checkpoint; its gates before its values here.

    The matrix of an expert is transposed in the checkpoint; a bias is not.
    """

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        rows = tensors[0].mT if tensors[0].ndim == 3 else tensors[0]
        return rows.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        rows = tensor.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        return [rows.mT if rows.ndim == 3 else rows]


class GptOss(MoeLike):
    """gpt-oss: experts with biases and a clamped SwiGLU, attention sinks, windows in every other layer, YaRN.

    Source: OpenAI 2025, gpt-oss-120b and gpt-oss-20b Model Card, https://arxiv.org/abs/2508.10925.
    """

    model_type = "gpt_oss"
    base_class = "GptOssModel"
    causal_lm_class = "GptOssForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    aliases: ClassVar[Mapping[str, str]] = {"num_experts": COUNT}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 201_088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0,
        "sliding_window": 128,
        "layer_types": None,
        "attention_bias": True,
        COUNT: 128,
        CHOSEN: 4,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    }
    optional_biases = ("attention_bias",)
    sinks = True

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the RoPE of a config.json without one, and the activation, which is the same whatever it says."""
        rope = ROPE if config["rope_parameters"] is None else config["rope_parameters"]
        return {**super().complete_config(config, names), "rope_parameters": rope, "hidden_act": "silu"}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        made = super().shape(config)
        return replace(made, bias=(*made.bias, "feedforward", "router"))

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        own: ExpertOptions = super().experts(config)["experts"]
        limit, slope = float(config["swiglu_limit"]), float(config["swiglu_alpha"])
        return {"experts": replace(own, limit=limit, slope=slope)}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options = shape.experts
        must = f"a {self.model_type} has experts with a limit"
        need(options is None or options.limit is not None, must, f"got {options}", "use save_pretrained instead")
        told = {} if options is None else {"swiglu_limit": options.limit, "swiglu_alpha": options.slope}
        return {**super().expert_config(shape), **told}

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        there, here = f"model.layers.{layer}.mlp", f"blocks.{layer}.feedforward"
        return [
            *linear_rules(f"{here}.router", f"{there}.router", bias=True),
            InterleavedGates(f"{here}.widen.weight", (f"{there}.experts.gate_up_proj",)),
            InterleavedGates(f"{here}.widen.bias", (f"{there}.experts.gate_up_proj_bias",)),
            TransposedWeight(f"{here}.narrow.weight", (f"{there}.experts.down_proj",)),
            TensorRule(f"{here}.narrow.bias", (f"{there}.experts.down_proj_bias",)),
        ]

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(every_nth_whole({**config, "sliding_window_pattern": EVERY}))

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        # transformers needs a number, even where no layer has a window
        window = found["sliding_window"] or self.defaults["sliding_window"]
        return {"sliding_window": window, "layer_types": found["layer_types"]}
