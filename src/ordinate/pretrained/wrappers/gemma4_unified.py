"""Gemma 4 without towers."""

from ordinate.pretrained._wrapper import Wrapper


class Gemma4Unified(Wrapper):
    """Gemma 4 of texts, images and sounds without towers for these (12B), around a gemma4_unified_text.

    Source: Gemma Team 2026, Gemma 4, https://ai.google.dev/gemma/docs/core/model_card_4.
    """

    model_type = "gemma4_unified"
    causal_lm_class = "Gemma4UnifiedForConditionalGeneration"
    base_class = "Gemma4UnifiedModel"
    text_type = "gemma4_unified_text"
    text_type_fixed = True
    keeps_cap = True
