"""Granite 4."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import LAYER_PLACEHOLDER, TensorRule
from ordinate.pretrained.granite_moe_like import SHARED, GraniteMoeSharedLike
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES, LINEAR, TYPES
from ordinate.pretrained.mamba_hybrid_like import KEYS, BambaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT
from ordinate.pretrained.rope_parameters import NONE

POSITIONS, ROPE = "position_embedding_type", "rope"
"""The key of the scheme of layers with attention, and its only value with RoPE."""
INNER = "intermediate_size"
"""The key of the hidden width of an expert."""


class Granitemoehybrid(BambaLike, GraniteMoeSharedLike):
    """Granite 4: Granite with Mamba-2 in the layers that `layer_types` says, without positions unless so set.

    Layers have experts and a network beside them that every token has, or with `num_local_experts` 0 that network
    only.

    Source: the model `GraniteMoeHybridForCausalLM` of transformers, version 5, of the Granite Team, IBM.
    """

    model_type = "granitemoehybrid"
    base_class = "GraniteMoeHybridModel"
    causal_lm_class = "GraniteMoeHybridForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **GraniteMoeSharedLike.defaults,
        **BambaLike.usual_mamba,
        SHARED: 1024,
        POSITIONS: None,
        TYPES: None,
    }
    aliases: ClassVar[Mapping[str, str]] = {"layers_block_type": TYPES}
    expert_sizes = frozenset({INNER, COUNT, CHOSEN})
    optional_sizes = expert_sizes | KEYS.names | ATTENTION_SIZES

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        return [LINEAR] * config["num_hidden_layers"]

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        return super().scheme(config, head_width) if config[POSITIONS] == ROPE else NONE

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        if shape.scheme_spec == NONE:
            return {POSITIONS: None}
        return {POSITIONS: ROPE, **super().scheme_config(shape, head_width)}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        if config[COUNT] > 0:
            return super().experts(config)
        width, must = config[SHARED], f"{SHARED} must be above zero where there are no experts"
        need(width > 0, must, f"got {width}", "load another checkpoint")
        return {"experts": None, "hidden": width}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        return {COUNT: 0, SHARED: shape.hidden_width} if shape.experts is None else super().expert_config(shape)

    def feedforward_rules(self, shape: Shape, layer: str = LAYER_PLACEHOLDER) -> Sequence[TensorRule]:
        if shape.experts is None:
            return self.network_rules(f"model.layers.{layer}.shared_mlp", f"blocks.{layer}.feedforward")
        return super().feedforward_rules(shape, layer)

    def computed(self, shape: Shape) -> Mapping[str, Tensor]:
        """Return the tensors of networks beside the experts that have no channels: transformers has them."""
        if shape.experts is None or shape.experts.shared_hidden is not None:
            return {}
        sizes = {"input_linear": (0, shape.width), "output_linear": (shape.width, 0)}
        return {
            f"model.layers.{layer}.shared_mlp.{name}.weight": torch.empty(size)
            for layer in range(shape.layers)
            for name, size in sizes.items()
        }

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one of such a network."""
        empty = {self.stored_name(one, (name,)) for one in self.computed(shape)}
        return super().ignores(name, shape) or name in empty
