"""InternVL."""

from ordinate.pretrained._wrapper import Wrapper


class InternVL(Wrapper):
    """InternVL 3 and 3.5, around a qwen2, a qwen3, a mixture of experts or another decoder.

    Source: Zhu et al. 2025, https://arxiv.org/abs/2504.10479.
    """

    model_type = "internvl"
    causal_lm_class = "InternVLForConditionalGeneration"
    base_class = "InternVLModel"
    text_type = "qwen2"
