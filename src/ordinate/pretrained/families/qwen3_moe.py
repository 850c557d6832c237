"""Qwen3 with experts."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.models.experts import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike
from ordinate.pretrained.sliding_windows import one_window, one_window_config

PUBLISHED_COUNT = "num_experts"
"""The name of the number of experts in published files."""

EXPERT_SIZES = frozenset({COUNT, PUBLISHED_COUNT, CHOSEN, "moe_intermediate_size"})
"""Keys of the sizes of experts."""


class Qwen3Moe(MoeLike):
    """Qwen3 with a mixture of experts: in every layer, every n-th, or all but some.

    Source: Yang et al. 2025, https://arxiv.org/abs/2505.09388.
    """

    model_type = "qwen3_moe"
    base_class = "Qwen3MoeModel"
    causal_lm_class = "Qwen3MoeForCausalLM"
    span_prefix = "transformer."
    aliases: ClassVar[Mapping[str, str]] = {PUBLISHED_COUNT: COUNT}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "attention_bias": False,
        COUNT: 128,
        CHOSEN: 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": None,
    }
    optional_sizes = frozenset({"intermediate_size", *EXPERT_SIZES})
    optional_biases = ("attention_bias",)
    qk_norm = True

    def read_config(self, given: Mapping[str, Any], names: Collection[str]) -> Shape:
        # the other one of the two names precedes in transformers
        kept = {name: value for name, value in given.items() if name != PUBLISHED_COUNT or COUNT not in given}
        return super().read_config(kept, names)

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        if shape.experts is None:
            return self.optional_sizes - EXPERT_SIZES
        return self.optional_sizes if shape.experts.dense_layers else EXPERT_SIZES

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        layers, only, every = (
            config["num_hidden_layers"],
            config["mlp_only_layers"] or (),
            config["decoder_sparse_step"],
        )
        dense = tuple(layer for layer in range(layers) if layer in only or (layer + 1) % every)
        if config[COUNT] < 1 or len(dense) == layers:
            return {}
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            normalise=bool(config["norm_topk_prob"]),
            dense_layers=dense,
            dense_hidden=config["intermediate_size"] if dense else None,
        )
        return {"experts": options, "hidden": config["moe_intermediate_size"]}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, hidden = shape.experts, shape.hidden_width
        if options is None:
            return {PUBLISHED_COUNT: 0}
        return {
            PUBLISHED_COUNT: options.count,
            CHOSEN: options.chosen,
            "intermediate_size": hidden if options.dense_hidden is None else options.dense_hidden,
            "moe_intermediate_size": hidden,
            "norm_topk_prob": options.normalise,
            "mlp_only_layers": list(options.dense_layers),
        }

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return one_window(config) if config["use_sliding_window"] else (None,)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = one_window_config(self.model_type, shape)
        return {**found, "use_sliding_window": found["sliding_window"] is not None}
