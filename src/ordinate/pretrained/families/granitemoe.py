"""Granite with experts."""

from ordinate.pretrained.granite_moe_like import GraniteMoeLike


class Granitemoe(GraniteMoeLike):
    """Granite with a mixture of experts in every layer.

    Source: Granite Team 2024, Granite 3.0 Language Models,
        https://github.com/ibm-granite/granite-3.0-language-models.
    """

    model_type = "granitemoe"
    base_class = "GraniteMoeModel"
    causal_lm_class = "GraniteMoeForCausalLM"
