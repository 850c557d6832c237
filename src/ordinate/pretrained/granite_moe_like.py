"""Base class of Granite-like decoders with a mixture of experts."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.granite_like import GraniteLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MOST, MoeLike

LAYER = "block_sparse_moe"
RENAMED: Mapping[str, str] = {
    "router.layer.weight": "router.weight",
    "input_linear.weight": "experts.gate_up_proj",
    "output_linear.weight": "experts.down_proj",
}
"""The ends of the names of tensors in published files, and those in files of transformers 5 in its own format."""

SHARED = "shared_intermediate_size"
"""The key of the hidden width of the network that every token has beside its experts; 0: there is none."""


class GraniteMoeLike(GraniteLike, MoeLike):
    """Granite-like decoders with a mixture of experts, all of which are in one tensor.

    May: `expert_names`.
    """

    renamed: ClassVar[Mapping[str, str]] = {f"{LAYER}.{here}": f"{LAYER}.{there}" for here, there in RENAMED.items()}
    expert_names: ClassVar[Sequence[str]] = tuple(RENAMED)
    """The ends of the names of router, first and second matrix of the experts in checkpoints."""
    defaults: ClassVar[Mapping[str, Any]] = {**GraniteLike.defaults, COUNT: 8, CHOSEN: 2}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add that no number of tensors limits the number of experts."""
        return {**super().complete_config(config, names), MOST: math.inf}

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        there, here = f"model.layers.{layer}.{LAYER}", f"blocks.{layer}.feedforward"
        parts = zip(("router", "widen", "narrow"), self.expert_names, strict=True)
        return [TensorRule(f"{here}.{ours}.weight", (f"{there}.{theirs}",)) for ours, theirs in parts]


class GraniteMoeSharedLike(GraniteMoeLike):
    """Those with a network beside the experts, which every token has."""

    defaults: ClassVar[Mapping[str, Any]] = {**GraniteMoeLike.defaults, SHARED: 0}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        own, width = super().experts(config)["experts"], config[SHARED]
        return {"experts": replace(own, shared_hidden=width if width else None)}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        width = None if shape.experts is None else shape.experts.shared_hidden
        return {**super().expert_config(shape), SHARED: width or 0}

    def shared_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        return self.network_rules(f"model.layers.{layer}.shared_mlp", f"blocks.{layer}.feedforward.shared")

    def network_rules(self, there: str, here: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of that network, with its names in the checkpoint and in our model."""
        return [
            *linear_rules(f"{here}.widen", f"{there}.input_linear", bias=False),
            *linear_rules(f"{here}.narrow", f"{there}.output_linear", bias=False),
        ]
