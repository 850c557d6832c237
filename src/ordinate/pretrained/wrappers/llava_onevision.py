"""LLaVA-OneVision."""

from ordinate.pretrained._wrapper import Wrapper


class LlavaOnevision(Wrapper):
    """LLaVA-OneVision, around a qwen2.

    Source: Li et al. 2024, https://arxiv.org/abs/2408.03326.
    """

    model_type = "llava_onevision"
    causal_lm_class = "LlavaOnevisionForConditionalGeneration"
    base_class = "LlavaOnevisionModel"
    text_type = "qwen2"
    tied = False
    text_ties = True
