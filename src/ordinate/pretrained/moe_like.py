"""Base class of Llama-like decoders with a mixture of experts."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from ordinate.core.checks import need
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import LAYER_PLACEHOLDER, StackedPair, TensorRule, Weight, linear_rules
from ordinate.pretrained.llama_like import LlamaLike

COUNT, CHOSEN = "num_local_experts", "num_experts_per_tok"
"""The keys of the number of experts, and of those of each token."""
FUSED = "experts.gate_up_proj"
"""The end of the name of the tensor of all experts, in files of transformers 5 in its own format."""

MOST = "most_experts"
"""The setting of the largest number of experts that a file with a tensor for each of them can have."""


class ExpertMatrices(TensorRule):
    """A matrix of each expert in the checkpoint, in one tensor here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.stack(list(tensors))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return list(tensor.unbind())


class ExpertPairs(TensorRule):
    """Gate and up projection of each expert in turn in the checkpoint, in one tensor here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.stack(list(tensors)).unflatten(0, (-1, 2)).flatten(1, 2)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return list(tensor.unflatten(1, (2, -1)).flatten(0, 1).unbind())


class MoeLike(LlamaLike):
    """Llama-like decoders whose feed-forward is a mixture of experts.

    Must: as `LlamaLike`, and in a pair, to read and to write: `experts` and `expert_config`.
    May: `count_key`, `router`, `gate_names`, `fused_name`, `out_name`, `expert_layer`, `shared`, `expert_sizes`,
    `expert_rules` and `shared_rules`.
    """

    count_key: ClassVar[str] = COUNT
    """The key of the number of experts, where it is another one."""
    router: ClassVar[str] = "gate"
    """Name of the router in checkpoints."""
    expert_layer: ClassVar[str] = "mlp"
    """Name of router and experts in the layer of a checkpoint that has a tensor for each expert."""
    gate_names: ClassVar[tuple[str, ...]] = ("gate_proj", "up_proj")
    """Names of gate and up projection of an expert in it; of the second only, in families without gates."""
    fused_name: ClassVar[str] = FUSED
    """Name of both of all experts, in files of transformers 5 in its own format."""
    out_name: ClassVar[str] = "down_proj"
    """Name of the down projection of an expert in it."""
    shared: ClassVar[str] = "shared_experts"
    """Name of the network beside the experts that every token has, in models with one."""

    expert_sizes: ClassVar[frozenset[str]] = frozenset()
    """Those of `optional_sizes` that models with experts have; the others are of layers without."""

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        if shape.experts is None:
            return self.optional_sizes - self.expert_sizes
        return self.optional_sizes if shape.experts.dense_layers else self.expert_sizes

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a shape has for its experts."""
        return {"experts": ExpertOptions(count=self.expert_count(config), chosen=config[CHOSEN])}

    def expert_count(self, config: Mapping[str, Any]) -> int:
        """Return the number of experts; raise a ValueError if there is none, or a tensor for each cannot be there."""
        count, must = config[self.count_key], f"{self.count_key} must be above zero, and fit the weights"
        came, remedy = f"got {count} for {config[MOST]} tensors", "check that config.json belongs to these weights"
        need(0 < count <= config[MOST], must, came, remedy)
        return count

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        """Return the config.json keys of the experts; raise a ValueError unless there are some, in every layer."""
        options, must = shape.experts, f"a {self.model_type} has experts in every layer"
        if options is None or options.dense_layers:
            raise ValueError(f"{must}; got experts={options}; choose another family, or use save_pretrained")
        return {self.count_key: options.count, CHOSEN: options.chosen}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read from the names of the tensors whether one is of all experts, and how many there can be."""
        fused = any(name.endswith(self.fused_name) for name in names)
        most = math.inf if fused or not names else len(names)
        return {**super().complete_config(config, names), FUSED: fused, MOST: most}

    def stored_name(self, theirs: str, names: Collection[str]) -> str:
        """Return a tensor's name in a checkpoint; transformers reads the names of both formats in one file."""
        here, there = f".{self.expert_layer}.", ".mlp."
        other = theirs.replace(here, there) if here in theirs else theirs.replace(there, here)
        name, same = (super(MoeLike, self).stored_name(each, names) for each in (theirs, other))
        return same if name not in names and same in names else name

    def shape(self, config: Mapping[str, Any]) -> Shape:
        return replace(super().shape(config), **self.experts(config))

    def config(self, shape: Shape) -> dict[str, Any]:
        return {**super().config(shape), **self.expert_config(shape)}

    def feedforward_rules(self, shape: Shape, layer: str = LAYER_PLACEHOLDER) -> Sequence[TensorRule]:
        if shape.experts is None:
            return super().feedforward_rules(shape, layer)
        rules: list[TensorRule] = []
        for place in range(shape.layers):
            dense = place in shape.experts.dense_layers
            make = super().feedforward_rules if dense else self.expert_rules
            rules += make(shape, str(place))
            if shape.experts.shared_hidden is not None and not dense:
                rules += self.shared_rules(shape, str(place))
        return rules

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of the router and the experts of a layer."""
        fused = self.settings.get(FUSED, False)
        there, here = f"model.layers.{layer}.{'mlp' if fused else self.expert_layer}", f"blocks.{layer}.feedforward"
        router = linear_rules(f"{here}.router", f"{there}.{self.router}", bias=False)
        if fused:
            pairs = TensorRule(f"{here}.widen.weight", (f"{there}.{self.fused_name}",))
            return [*router, pairs, TensorRule(f"{here}.narrow.weight", (f"{there}.experts.down_proj",))]
        count = 0 if shape.experts is None else shape.experts.count
        each = [f"{there}.experts.{expert}" for expert in range(count)]
        gates = tuple(f"{expert}.{name}.weight" for expert in each for name in self.gate_names)
        outs = tuple(f"{expert}.{self.out_name}.weight" for expert in each)
        kind = ExpertPairs if len(self.gate_names) == 2 else ExpertMatrices
        return [*router, kind(f"{here}.widen.weight", gates), ExpertMatrices(f"{here}.narrow.weight", outs)]

    def shared_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of the network of a layer that every token has beside its experts."""
        there = f"model.layers.{layer}.{self.feedforward_name}.{self.shared}"
        here = f"blocks.{layer}.feedforward.shared"
        gated = shape.experts is not None and shape.experts.shared_gate
        gates = tuple(f"{there}.{name}" for name in self.gate_names)
        return [
            *linear_rules(f"{here}.widen", *gates, kind=StackedPair if len(gates) == 2 else TensorRule, bias=False),
            *linear_rules(f"{here}.narrow", f"{there}.{self.out_name}", bias=False),
            *(linear_rules(f"{here}_gate", f"{there}_gate", bias=False) if gated else ()),
        ]
