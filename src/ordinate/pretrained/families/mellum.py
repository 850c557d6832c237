"""Mellum 2."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.layer_type_ropes import layer_type_ropes_config
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.mlp_layer_types import KINDS, layer_kinds, layers_without_experts
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike
from ordinate.pretrained.qwen_moe_like import INNER, PUBLISHED_COUNT
from ordinate.pretrained.rope_parameters import complete_rope_parameters, rope_spec
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

ROPES = "rope_parameters"
THETAS: Mapping[str, float] = {FULL: 5e5, SLIDING: 1e4}
"""The `rope_theta` of each type of layers, in a config.json without `rope_parameters`."""


class Mellum(MoeLike):
    """Mellum 2: Qwen3 with experts, whose layers with a sliding window have a RoPE of their own.

    Source: the model `MellumForCausalLM` of transformers, version 5, of JetBrains.
    """

    model_type = "mellum"
    base_class = "MellumModel"
    causal_lm_class = "MellumForCausalLM"
    # transformers has no other
    heads = ()
    expert_sizes = frozenset({COUNT, PUBLISHED_COUNT, CHOSEN, INNER})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    aliases: ClassVar[Mapping[str, str]] = {
        PUBLISHED_COUNT: COUNT,
        "num_mtp_layers": "num_nextn_predict_layers",
    }
    fallback_aliases = frozenset(aliases)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 98_304,
        "hidden_size": 2304,
        "intermediate_size": 7168,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "sliding_window": 1024,
        "layer_types": None,
        "attention_bias": False,
        COUNT: 64,
        CHOSEN: 8,
        INNER: 896,
        KINDS: None,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": None,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the RoPE and the types of layers of a config.json without them."""
        ropes = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in THETAS.items()}
        usual = {ROPES: ropes, "layer_types": [FULL] * config["num_hidden_layers"]}
        told = {name: value for name, value in usual.items() if config[name] is None}
        return {**super().complete_config(config, names), **told}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        kinds = config["layer_types"]
        ropes = {kind: self._rope(config, kind, head_width) for kind in sorted(set(kinds))}
        return ",".join(ropes[kind] for kind in kinds)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        return layer_type_ropes_config(self.model_type, shape, head_width, THETAS)

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True, "max_window_layers": None})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return {"sliding_window": layer_types(shape)["sliding_window"]}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        dense = layers_without_experts(config, 0)
        if len(dense) == config["num_hidden_layers"]:
            return {}
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            normalise=bool(config["norm_topk_prob"]),
            dense_layers=dense,
            dense_hidden=config["intermediate_size"] if dense else None,
        )
        return {"experts": options, "hidden": config[INNER]}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, hidden = shape.experts, shape.hidden_width
        if options is None:
            return layer_kinds(shape, range(shape.layers))
        return {
            COUNT: options.count,
            CHOSEN: options.chosen,
            "intermediate_size": hidden if options.dense_hidden is None else options.dense_hidden,
            INNER: hidden,
            "norm_topk_prob": options.normalise,
            **layer_kinds(shape, options.dense_layers),
        }

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one for tokens after the next one."""
        return super().ignores(name, shape) or name.startswith("mtp.")

    def _rope(self, config: Mapping[str, Any], kind: str, head_width: int) -> str:
        """Return the scheme of the layers of a type, whose parameters are in one object, completed by none beside."""
        found, length = config[ROPES].get(kind), config["max_position_embeddings"]
        must, came = f"{ROPES} of {kind} must be an object", f"got {shown(found)}"
        need(isinstance(found, Mapping), must, came, "correct it, or download the file again")
        beside = {"max_position_embeddings": length}
        return rope_spec(complete_rope_parameters(dict(found), beside, partial=True), head_width, length)
