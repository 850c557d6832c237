"""ERNIE 4.5 with experts."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight, need_usual
from ordinate.pretrained.ernie_like import ErnieLike
from ordinate.pretrained.moe_like import MoeLike
from ordinate.pretrained.qwen_moe_like import INNER

COUNT, CHOSEN, SHARED = "moe_num_experts", "moe_k", "moe_num_shared_experts"
"""The keys of the number of experts, of those of each token, and of the widths of one that the shared network has."""
START, END, EVERY = "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval"
"""The keys of the first and the last layer that may have experts, and of how many have none between two that do."""
LEAST = "moe_norm_min"
"""The key of the least number by which the weights of experts are divided."""
LARGEST_LEAST = 1e-9
STATICS = "moe_statics.e_score_correction_bias"


class RowBias(TensorRule):
    """A vector, in the checkpoint a matrix with one row."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][0]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor[None]]


class Ernie45Moe(ErnieLike, MoeLike):
    """ERNIE 4.5 with experts, in some layers, whose choice has a bias of its own, and a shared network beside them.

    Layers that predict tokens after the next one are not read, as in transformers.

    Source: Baidu ERNIE Team 2025, ERNIE 4.5 Technical Report,
        https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf.
    """

    model_type = "ernie4_5_moe"
    base_class = "Ernie4_5_MoeModel"
    causal_lm_class = "Ernie4_5_MoeForCausalLM"
    aliases: ClassVar[Mapping[str, str]] = {"num_experts": COUNT, "num_experts_per_tok": CHOSEN}
    defaults: ClassVar[Mapping[str, Any]] = {
        **ErnieLike.usual,
        "hidden_size": 2560,
        "intermediate_size": 12_288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        INNER: 1536,
        CHOSEN: 6,
        COUNT: 64,
        SHARED: 2,
        START: 1,
        END: -1,
        EVERY: 1,
        LEAST: 1e-12,
    }
    count_key = COUNT
    expert_sizes = frozenset({INNER, COUNT, CHOSEN})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    renamed: ClassVar[Mapping[str, str]] = {f"mlp.{STATICS}": f"mlp.gate.{STATICS}"}
    wide = (".choice_bias", ".router.weight")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        # in transformers the experts have none, and the head has one too
        need_usual(self, {"use_bias": config.get("use_bias") or None}, use_bias=False)
        must, came = f"{LEAST} must be from 0 to {LARGEST_LEAST}", f"got {config[LEAST]}"
        need(0 <= config[LEAST] <= LARGEST_LEAST, must, came, "load another checkpoint")
        return super().shape(config)

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        layers, last = config["num_hidden_layers"], config[END]
        sparse = _sparse(range(layers), config[START], layers - 1 if last == -1 else last, config[EVERY])
        if not sparse:
            return {}
        dense = tuple(layer for layer in range(layers) if layer not in sparse)
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            dense_layers=dense,
            dense_hidden=config["intermediate_size"] if dense else None,
            choice_bias=True,
            shared_hidden=config[SHARED] * config[INNER] or None,
            wide_router=True,
        )
        return {"experts": options, "hidden": config[INNER]}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, hidden, layers = shape.experts, shape.hidden_width, range(shape.layers)
        if options is None:
            return {START: shape.layers}
        sparse = [layer for layer in layers if layer not in options.dense_layers]
        every = sparse[1] - sparse[0] if len(sparse) > 1 else 1
        must = f"a {self.model_type} has experts in every n-th of a range of layers, and a choice_bias"
        fits = options.choice_bias and sparse == _sparse(layers, sparse[0], sparse[-1], every)
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return {
            COUNT: options.count,
            CHOSEN: options.chosen,
            "intermediate_size": hidden if options.dense_hidden is None else options.dense_hidden,
            INNER: hidden,
            SHARED: (options.shared_hidden or 0) // hidden,
            START: sparse[0],
            END: sparse[-1],
            EVERY: every,
        }

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        bias = RowBias(f"blocks.{layer}.feedforward.choice_bias", (f"model.layers.{layer}.mlp.{STATICS}",))
        return [*super().expert_rules(shape, layer), bias]

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one for tokens after the next one."""
        return super().ignores(name, shape) or "mtp" in name


def _sparse(layers: Sequence[int], first: int, last: int, every: int) -> list[int]:
    """Return the layers with experts."""
    must = f"{EVERY} must be a whole number above zero"
    need(every > 0, must, f"got {every}", "correct it, or download the file again")
    return [layer for layer in layers if first <= layer <= last and (layer + 1) % every == 0]
