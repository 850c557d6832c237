"""FP8 in the format of compressed-tensors, which llm-compressor writes."""

from collections.abc import Mapping
from typing import Any, cast

from ordinate.core.checks import need, need_known, shown
from ordinate.pretrained._quantisation import AGAIN, FIELD, ORIGINAL, PackedWeight, Quantisation
from ordinate.pretrained.checkpoint_files import CheckpointTensors
from ordinate.pretrained.scaled_blocks import FLOATS, FP8, scaled_blocks

SCALE = "_scale"
"""What the name of a weight has behind it in that of its scales."""
INPUTS = ".input_scale"
"""End of the name of the fixed scale of the activations of a layer."""
GROUP = frozenset({"weights", "input_activations", "output_activations", "targets", "format"})
"""Keys of a group."""
WEIGHTS: Mapping[str, tuple[Any, ...]] = {
    "type": ("float",),
    "num_bits": (8,),
    "symmetric": (True,),
    "dynamic": (False,),
    "group_size": (None,),
    "actorder": (None,),
    "scale_dtype": (None,),
    "zp_dtype": (None,),
}
"""Values of the keys of `weights` that say how numbers are stored; the first stands for a missing key."""
STRATEGIES = ("tensor", "channel", "block")
"""What has a scale: a weight, a row of it, or a block."""
OBSERVED = frozenset({"strategy", "block_structure", "observer", "observer_kwargs"})
"""Other keys of `weights`; how scales were found does not change what is stored."""


class CompressedTensors(Quantisation):
    """Numbers of 8 bits (E4M3) with a scale for each weight, each row of it, or each block: w = fp8 scale.

    Of its formats only this one is read (float-quantized, with one group of layers).

    Source: https://github.com/vllm-project/compressed-tensors.
    """

    fields = frozenset(
        {"quant_method", "config_groups", "format", "ignore", "kv_cache_scheme", "quantization_status",
         "global_compression_ratio", "sparsity_config", "transform_config", "version", "run_compressed", "dequantize"}
    )  # fmt: skip
    skipped = ("ignore",)

    def check(self) -> None:
        self.need_field("format", ("float-quantized",))
        need(self.config.get("format") is not None, f"{FIELD} must have a format", "it has none", AGAIN)
        self.need_field("quantization_status", ("compressed", "frozen"))
        self.need_field("kv_cache_scheme", (None,))
        self.need_field("sparsity_config", (None, {}))
        self.need_field("transform_config", (None, {}))
        for name in ("run_compressed", "dequantize"):
            # what transformers shall make of the weights when it loads them
            self.need_field(name, (None, False, True))
        need_known(
            f"field of a group in {FIELD}", next((key for key in self._group if key not in GROUP), "weights"), GROUP
        )
        self._check_weights()
        must, came = "output_activations must be null", shown(self._group.get("output_activations"))
        need(self._group.get("output_activations") is None, must, f"got {came}", ORIGINAL)
        inside = self._group.get("format")
        must = "format of a group must be that of all weights"
        need(inside in (None, "float-quantized"), must, f"got {shown(inside)}", ORIGINAL)

    @property
    def _group(self) -> Mapping[str, Any]:
        groups = self.config.get("config_groups")
        one = list(groups.values()) if isinstance(groups, dict) else []
        must = f"config_groups in {FIELD} must have one group of layers"
        need(len(one) == 1 and isinstance(one[0], dict), must, f"got {shown(groups)}", ORIGINAL)
        return cast(Mapping[str, Any], one[0])

    @property
    def _weights(self) -> Mapping[str, Any]:
        found = self._group.get("weights")
        must = "weights of a group must say how they are stored"
        need(isinstance(found, dict), must, f"got {shown(found)}", ORIGINAL)
        return cast(Mapping[str, Any], found)

    def _check_weights(self) -> None:
        """Raise a ValueError unless weights are stored in FP8."""
        weights = self._weights
        for name, came in weights.items():
            need_known("field of the weights of a group", name, {*WEIGHTS, *OBSERVED})
            allowed = WEIGHTS.get(name, (came,))
            must = f"{name} of weights in {FIELD} must be {' or '.join(map(repr, allowed))}"
            need(came in allowed and type(came) in map(type, allowed), must, f"got {shown(came)}", ORIGINAL)
        need_known("strategy of weights", weights.get("strategy"), STRATEGIES)
        sides, blocks = weights.get("block_structure"), weights["strategy"] == "block"
        whole = isinstance(sides, list) and len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
        must = f"block_structure must be {'two whole numbers above zero' if blocks else 'null without blocks'}"
        need(whole if blocks else sides is None, must, f"got {shown(sides)}", AGAIN)

    @property
    def activations(self) -> str:
        return "input_activations" if self._group.get("input_activations") is not None else ""

    def packed(self, stored: CheckpointTensors) -> Mapping[str, PackedWeight]:
        weights = self._weights
        sides = weights.get("block_structure")
        blocks = {"tensor": None, "channel": (1, 0), "block": sides and (sides[0], sides[1])}
        found, block = [name for name in stored if stored.dtype(name) == FP8], blocks[weights["strategy"]]
        return {name: scaled_blocks(stored, (name, name + SCALE), block, FLOATS, rounds=True) for name in found}

    def unused(self, name: str) -> bool:
        return bool(self.activations) and name.endswith(INPUTS)
