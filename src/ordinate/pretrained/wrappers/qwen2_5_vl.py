"""Qwen2.5-VL."""

from ordinate.pretrained.qwen_vl_like import Qwen2VlLike


class Qwen25Vl(Qwen2VlLike):
    """Qwen2.5-VL of texts, images and videos, around a qwen2.

    Source: Bai et al. 2025, https://arxiv.org/abs/2502.13923.
    """

    model_type = "qwen2_5_vl"
    causal_lm_class = "Qwen2_5_VLForConditionalGeneration"
    base_class = "Qwen2_5_VLModel"
    text_type = "qwen2_5_vl_text"
