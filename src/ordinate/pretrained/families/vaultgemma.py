"""VaultGemma."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.gemma2_like import Gemma2Like


class Vaultgemma(Gemma2Like):
    """VaultGemma: Gemma 2 with a norm before each branch only, and none after it.

    Source: Sinha et al. 2025, VaultGemma: A Differentially Private Gemma Model, https://arxiv.org/abs/2510.15001.
    """

    model_type = "vaultgemma"
    base_class = "VaultGemmaModel"
    causal_lm_class = "VaultGemmaForCausalLM"
    # transformers has no other heads
    heads = ()
    norm_position = "pre"
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_norm": "input_layernorm",
        "feedforward_norm": "pre_feedforward_layernorm",
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        name: value for name, value in Gemma2Like.usual.items() if name != "token_classification_bias"
    }
