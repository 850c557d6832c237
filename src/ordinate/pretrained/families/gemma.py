"""Gemma."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.feedforward import FeedForwardKind
from ordinate.pretrained.gemma_like import GemmaLike


class Gemma(GemmaLike):
    """Gemma: Llama with zero-centred norms, GEGLU, token embeddings times the root of the width, wide heads.

    Source: Gemma Team 2024, https://arxiv.org/abs/2403.08295.
    """

    model_type = "gemma"
    base_class = "GemmaModel"
    causal_lm_class = "GemmaForCausalLM"
    # of the first files, whose models have the tanh formula
    gates: ClassVar[Mapping[str, FeedForwardKind]] = {**GemmaLike.gates, "gelu": "geglu_tanh"}
    defaults: ClassVar[Mapping[str, Any]] = {
        **GemmaLike.usual,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "hidden_act": "gelu_pytorch_tanh",
    }
