"""FP8 in blocks, the format of DeepSeek-V3 and of Qwen3-FP8."""

from collections.abc import Mapping

from ordinate.core.checks import need, shown
from ordinate.pretrained._quantisation import AGAIN, FIELD, PackedWeight, Quantisation
from ordinate.pretrained.checkpoint_files import CheckpointTensors
from ordinate.pretrained.scaled_blocks import FLOATS, FP8, POWERS, scaled_blocks

SCALE = "_scale_inv"
"""What the name of a weight has behind it in that of its scales, which multiply it."""
ACTIVATIONS = ".activation_scale"
"""End of the name of the fixed scale of the activations of a layer."""
SIDE = 128
"""Rows and columns of a block, unless config.json says otherwise."""


class Fp8(Quantisation):
    """Numbers of 8 bits (E4M3) in blocks of 128 x 128 with a scale each, or with one scale for each weight.

    Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report, https://arxiv.org/abs/2412.19437, section 3.3.2;
    Micikevicius et al. 2022, FP8 Formats for Deep Learning, https://arxiv.org/abs/2209.05433.
    """

    fields = frozenset(
        {"quant_method", "activation_scheme", "weight_block_size", "fmt", "scale_fmt", "expert_dtype", "dequantize",
         "modules_to_not_convert", "modules_to_convert", "ignored_layers"}
    )  # fmt: skip
    skipped = ("modules_to_not_convert", "ignored_layers")

    def check(self) -> None:
        self.need_field("activation_scheme", ("dynamic", "static"))
        self.need_field("fmt", ("e4m3",))
        self.need_field("scale_fmt", ("float", "ue8m0"))
        self.need_field("expert_dtype", ("fp8",))
        # what transformers shall make of the weights when it loads them
        self.need_field("dequantize", (False, True))
        # tables of embeddings, which are read in the same way; their names are only needed to make modules for them
        listed = self.config.get("modules_to_convert")
        fits = listed is None or (isinstance(listed, list) and all(isinstance(one, str) for one in listed))
        need(fits, f"modules_to_convert in {FIELD} must be a list of names", f"got {shown(listed)}", AGAIN)
        sides = self.config.get("weight_block_size", [SIDE, SIDE])
        whole = isinstance(sides, list) and len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
        must = f"weight_block_size in {FIELD} must be two whole numbers above zero, or null"
        need(sides is None or whole, must, f"got {shown(sides)}", AGAIN)

    @property
    def activations(self) -> str:
        return f"activation_scheme {self.config.get('activation_scheme', 'dynamic')}"

    def packed(self, stored: CheckpointTensors) -> Mapping[str, PackedWeight]:
        sides = self.config.get("weight_block_size", [SIDE, SIDE])
        block = None if sides is None else (sides[0], sides[1])
        # bytes are exponents only where config.json says so
        powers = POWERS if self.config.get("scale_fmt") == "ue8m0" else POWERS - {"U8"}
        found = [name for name in stored if stored.dtype(name) == FP8]
        return {name: scaled_blocks(stored, (name, name + SCALE), block, FLOATS | powers) for name in found}

    def unused(self, name: str) -> bool:
        return self.config.get("activation_scheme") == "static" and name.endswith(ACTIVATIONS)
