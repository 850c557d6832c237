"""Gemma 3."""

from ordinate.pretrained._wrapper import Wrapper


class Gemma3(Wrapper):
    """Gemma 3 of texts and images, around a gemma3_text.

    Source: Gemma Team 2025, https://arxiv.org/abs/2503.19786.
    """

    model_type = "gemma3"
    causal_lm_class = "Gemma3ForConditionalGeneration"
    base_class = "Gemma3Model"
    text_type = "gemma3_text"
    text_type_fixed = True
