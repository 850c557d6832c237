"""ERNIE 4.5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.ernie_like import ErnieLike


class Ernie45(ErnieLike):
    """ERNIE 4.5 without experts: Llama with RoPE on interleaved channel pairs, and biases everywhere if so set.

    Source: Baidu ERNIE Team 2025, ERNIE 4.5 Technical Report,
        https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf.
    """

    model_type = "ernie4_5"
    base_class = "Ernie4_5Model"
    causal_lm_class = "Ernie4_5ForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **ErnieLike.usual,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "use_bias": False,
    }
    optional_biases = ("use_bias",)
    bias_key = "use_bias"
    inner_bias_key = "use_bias"
