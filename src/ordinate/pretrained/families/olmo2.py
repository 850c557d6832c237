"""OLMo 2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.llama_like import OUT_NORMS, LlamaLike


class Olmo2(LlamaLike):
    """OLMo 2: Llama with norms of the outputs of branches, and of queries and keys over all heads together.

    Source: OLMo Team 2024, 2 OLMo 2 Furious, https://arxiv.org/abs/2501.00656.
    """

    model_type = "olmo2"
    base_class = "Olmo2Model"
    causal_lm_class = "Olmo2ForCausalLM"
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 50_304,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 1,
        "attention_bias": False,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True
    qk_norm_across = True
    norm_position = "res_post"
    norms = OUT_NORMS
