"""Granite with experts and a shared network."""

from ordinate.pretrained.granite_moe_like import GraniteMoeSharedLike


class Granitemoeshared(GraniteMoeSharedLike):
    """Granite with a mixture of experts in every layer, and a network beside them that every token has.

    Source: the model `GraniteMoeSharedForCausalLM` of transformers, version 5, of the Granite Team, IBM.
    """

    model_type = "granitemoeshared"
    base_class = "GraniteMoeSharedModel"
    causal_lm_class = "GraniteMoeSharedForCausalLM"
