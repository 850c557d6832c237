"""Granite."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.granite_like import GraniteLike


class Granite(GraniteLike):
    """Granite: Llama with factors of the token embeddings, the scores, the output of each branch and the logits.

    Source: Granite Team 2024, Granite 3.0 Language Models,
        https://github.com/ibm-granite/granite-3.0-language-models; the factors are those of Yang et al. 2022, Tensor
        Programs V, https://arxiv.org/abs/2203.03466.
    """

    model_type = "granite"
    base_class = "GraniteModel"
    causal_lm_class = "GraniteForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {**GraniteLike.defaults, "mlp_bias": False}
    optional_biases = ("attention_bias", "mlp_bias")
