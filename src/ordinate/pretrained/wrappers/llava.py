"""LLaVA."""

from ordinate.pretrained._wrapper import Wrapper


class Llava(Wrapper):
    """LLaVA 1.5 and models like it, around a llama, a mistral, a qwen2 or another decoder.

    Source: Liu et al. 2023, https://arxiv.org/abs/2304.08485; Liu et al. 2024, https://arxiv.org/abs/2310.03744.
    """

    model_type = "llava"
    causal_lm_class = "LlavaForConditionalGeneration"
    base_class = "LlavaModel"
    text_type = "llama"
    tied = False
    text_ties = True
