"""The language model of Qwen3.5 with experts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.delta_hybrid_like import LINEAR_SIZES
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES
from ordinate.pretrained.moe_like import CHOSEN, MoeLike
from ordinate.pretrained.qwen_hybrid_like import Qwen35Like
from ordinate.pretrained.qwen_moe_like import INNER, PUBLISHED_COUNT

SHARED = "shared_expert_intermediate_size"


class Qwen35MoeText(Qwen35Like, MoeLike):
    """The language model of Qwen3.5 with a mixture of experts, and a network beside them, in every layer.

    Source: Qwen Team 2026, Qwen3.5, https://huggingface.co/Qwen/Qwen3.5-35B-A3B.
    """

    model_type = "qwen3_5_moe_text"
    base_class = "Qwen3_5MoeTextModel"
    causal_lm_class = "Qwen3_5MoeForCausalLM"
    # transformers has no other
    heads = ()
    count_key = PUBLISHED_COUNT
    defaults: ClassVar[Mapping[str, Any]] = {
        **Qwen35Like.usual_hybrid,
        "vocab_size": 248_320,
        "num_hidden_layers": 40,
        "num_key_value_heads": 2,
        PUBLISHED_COUNT: 256,
        CHOSEN: 8,
        INNER: 512,
        SHARED: 512,
    }
    expert_sizes = frozenset({PUBLISHED_COUNT, CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({*expert_sizes, *LINEAR_SIZES, *ATTENTION_SIZES})
    shared = "shared_expert"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        # the only networks are those of the experts
        return super().shape(CheckpointConfig({**config, "intermediate_size": config[INNER]}))

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            shared_hidden=config[SHARED],
            shared_gate=True,
        )
        return {"experts": options}

    def config(self, shape: Shape) -> dict[str, Any]:
        made = super().config(shape)
        return {INNER: made.pop("intermediate_size"), **made}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options = shape.experts
        shared = None if options is None else options.shared_hidden
        must = f"a {self.model_type} has a network beside its experts, with a gate"
        fits = options is not None and shared is not None and options.shared_gate
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return {**super().expert_config(shape), SHARED: shared}
