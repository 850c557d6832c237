"""Qwen3.5."""

from ordinate.pretrained._wrapper import Wrapper


class Qwen35(Wrapper):
    """Qwen3.5 of texts and images, around a qwen3_5_text.

    Source: Qwen Team 2026, Qwen3.5, https://huggingface.co/Qwen/Qwen3.5-27B.
    """

    model_type = "qwen3_5"
    causal_lm_class = "Qwen3_5ForConditionalGeneration"
    base_class = "Qwen3_5Model"
    text_type = "qwen3_5_text"
    text_type_fixed = True
    tied = False
