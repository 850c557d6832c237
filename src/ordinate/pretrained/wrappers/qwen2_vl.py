"""Qwen2-VL."""

from ordinate.pretrained.qwen_vl_like import Qwen2VlLike


class Qwen2Vl(Qwen2VlLike):
    """Qwen2-VL of texts, images and videos, around a qwen2.

    Source: Wang et al. 2024, https://arxiv.org/abs/2409.12191.
    """

    model_type = "qwen2_vl"
    causal_lm_class = "Qwen2VLForConditionalGeneration"
    base_class = "Qwen2VLModel"
    text_type = "qwen2_vl_text"
