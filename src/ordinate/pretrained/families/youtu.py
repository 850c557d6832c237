"""Youtu-LLM."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.latent_like import CONTENT, LAYOUT, QUERY_RANK, RANK, ROTATED, VALUE, LatentLike
from ordinate.pretrained.llama_like import LlamaLike


class Youtu(LatentLike):
    """Youtu-LLM: the latent attention of DeepSeek-V3, without experts.

    Source: the model `YoutuForCausalLM` of transformers, version 5, of the Youtu-LLM team of Tencent.
    """

    model_type = "youtu"
    base_class = "YoutuModel"
    causal_lm_class = "YoutuForCausalLM"
    # transformers has no other
    heads = ()
    head_dim_counts = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
        "attention_bias": False,
        RANK: 512,
        QUERY_RANK: 1536,
        CONTENT: 128,
        ROTATED: 64,
        VALUE: 128,
        LAYOUT: True,
    }
