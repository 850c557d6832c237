"""Gemma 4."""

from ordinate.pretrained._wrapper import Wrapper


class Gemma4(Wrapper):
    """Gemma 4 of texts, images and sounds, around a gemma4_text, whose soft cap of logits it has too.

    Source: Gemma Team 2026, Gemma 4, https://ai.google.dev/gemma/docs/core/model_card_4.
    """

    model_type = "gemma4"
    causal_lm_class = "Gemma4ForConditionalGeneration"
    base_class = "Gemma4Model"
    text_type = "gemma4_text"
    text_type_fixed = True
    keeps_cap = True
