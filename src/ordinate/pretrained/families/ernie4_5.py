"""ERNIE 4.5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import interleaved


class Ernie45(LlamaLike):
    """ERNIE 4.5 without experts: Llama with RoPE on interleaved channel pairs, and biases everywhere if so set.

    Source: Baidu ERNIE Team 2025, ERNIE 4.5 Technical Report,
        https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf.
    """

    model_type = "ernie4_5"
    base_class = "Ernie4_5Model"
    causal_lm_class = "Ernie4_5ForCausalLM"
    # transformers has no other heads
    heads = ()
    defaults: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in LlamaLike.usual.items() if name != "token_classification_bias"},
        "vocab_size": 103_424,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
        "rope_theta": 5e5,
        "use_bias": False,
        "tie_word_embeddings": True,
    }
    optional_biases = ("use_bias",)
    bias_key = "use_bias"
    inner_bias_key = "use_bias"

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        return interleaved(super().scheme(config, head_width))
