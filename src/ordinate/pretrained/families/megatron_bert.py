"""Megatron-BERT."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.next_sentence_like import NextSentenceLike


class MegatronBert(NextSentenceLike):
    """Megatron-BERT: BERT with pre-norm, whose embeddings are not normalised.

    Source: Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053.
    """

    model_type = "megatron-bert"
    masked_lm_class = "MegatronBertForMaskedLM"
    causal_lm_class = "MegatronBertForCausalLM"
    base_class = "MegatronBertModel"
    norm_position = "pre"
    embedding_norm = False
    final_norm = "encoder.ln"
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        **NextSentenceLike.parts,
        "mixer_norm": "attention.ln",
        "feedforward_norm": "ln",
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        **NextSentenceLike.defaults,
        "vocab_size": 29_056,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
