"""Base class of decoders like Qwen with experts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike

PUBLISHED_COUNT = "num_experts"
"""The name of the number of experts in published files."""
INNER = "moe_intermediate_size"
"""The key of the hidden width of an expert."""


class QwenMoeLike(MoeLike):
    """Decoders like Qwen with experts: in every layer, every n-th, or all but some.

    May: `shared_options` and `shared_config`, in a pair, to read and to write.
    """

    usual_experts: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "max_position_embeddings": 32_768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "norm_topk_prob": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": None,
    }
    """Default values that these families share."""
    expert_sizes = frozenset({COUNT, PUBLISHED_COUNT, CHOSEN, INNER})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        layers, only, every = (
            config["num_hidden_layers"],
            config["mlp_only_layers"] or (),
            config["decoder_sparse_step"],
        )
        dense = tuple(layer for layer in range(layers) if layer in only or (layer + 1) % every)
        if config[self.count_key] < 1 or len(dense) == layers:
            return {}
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            normalise=bool(config["norm_topk_prob"]),
            dense_layers=dense,
            dense_hidden=config["intermediate_size"] if dense else None,
            **self.shared_options(config),
        )
        return {"experts": options, "hidden": config[INNER]}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, hidden = shape.experts, shape.hidden_width
        if options is None:
            return {PUBLISHED_COUNT: 0}
        return {
            PUBLISHED_COUNT: options.count,
            CHOSEN: options.chosen,
            "intermediate_size": hidden if options.dense_hidden is None else options.dense_hidden,
            INNER: hidden,
            "norm_topk_prob": options.normalise,
            "mlp_only_layers": list(options.dense_layers),
            **self.shared_config(options),
        }

    def shared_options(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `ExpertOptions` have for a network that every token has beside its experts."""
        return {}

    def shared_config(self, options: ExpertOptions) -> dict[str, Any]:
        """Return the config.json keys of that network."""
        return {}
