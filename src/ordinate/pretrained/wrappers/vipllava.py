"""ViP-LLaVA."""

from ordinate.pretrained._wrapper import Wrapper


class VipLlava(Wrapper):
    """ViP-LLaVA, LLaVA with marks in images, around a llama.

    Source: Cai et al. 2024, https://arxiv.org/abs/2312.00784.
    """

    model_type = "vipllava"
    causal_lm_class = "VipLlavaForConditionalGeneration"
    base_class = "VipLlavaModel"
    text_type = "llama"
    tied = False
