"""Qwen3.5 with experts."""

from ordinate.pretrained._wrapper import Wrapper


class Qwen35Moe(Wrapper):
    """Qwen3.5 of texts and images, with experts, around a qwen3_5_moe_text.

    Source: Qwen Team 2026, Qwen3.5, https://huggingface.co/Qwen/Qwen3.5-35B-A3B.
    """

    model_type = "qwen3_5_moe"
    causal_lm_class = "Qwen3_5MoeForConditionalGeneration"
    base_class = "Qwen3_5MoeModel"
    text_type = "qwen3_5_moe_text"
    text_type_fixed = True
    tied = False
