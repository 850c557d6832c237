"""The language model of Qwen3.5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.delta_hybrid_like import LINEAR_SIZES
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES
from ordinate.pretrained.qwen_hybrid_like import Qwen35Like


class Qwen35Text(Qwen35Like):
    """The language model of Qwen3.5: Qwen3-Next without experts, its projections in other tensors.

    Positions of texts are the same on all three axes of its RoPE, so that its sections have no effect.

    Source: Qwen Team 2026, Qwen3.5, https://huggingface.co/Qwen/Qwen3.5-27B.
    """

    model_type = "qwen3_5_text"
    base_class = "Qwen3_5TextModel"
    causal_lm_class = "Qwen3_5ForCausalLM"
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **Qwen35Like.usual_hybrid,
        "vocab_size": 248_320,
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 32,
        "num_key_value_heads": 4,
    }
    optional_sizes = frozenset({*LINEAR_SIZES, *ATTENTION_SIZES})
