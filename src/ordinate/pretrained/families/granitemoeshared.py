"""Granite with experts and a shared network."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.granite_moe_like import GraniteMoeLike

SHARED = "shared_intermediate_size"


class Granitemoeshared(GraniteMoeLike):
    """Granite with a mixture of experts in every layer, and a network beside them that every token has.

    Source: the model `GraniteMoeSharedForCausalLM` of transformers, version 5, of the Granite Team, IBM.
    """

    model_type = "granitemoeshared"
    base_class = "GraniteMoeSharedModel"
    causal_lm_class = "GraniteMoeSharedForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {**GraniteMoeLike.defaults, SHARED: 0}

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        own, width = super().experts(config)["experts"], config[SHARED]
        return {"experts": replace(own, shared_hidden=width if width else None)}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        width = None if shape.experts is None else shape.experts.shared_hidden
        return {**super().expert_config(shape), SHARED: width or 0}

    def shared_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        there, here = f"model.layers.{layer}.shared_mlp", f"blocks.{layer}.feedforward.shared"
        return [
            *linear_rules(f"{here}.widen", f"{there}.input_linear", bias=False),
            *linear_rules(f"{here}.narrow", f"{there}.output_linear", bias=False),
        ]
