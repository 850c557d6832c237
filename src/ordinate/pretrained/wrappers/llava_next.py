"""LLaVA-NeXT."""

from ordinate.pretrained._wrapper import Wrapper


class LlavaNext(Wrapper):
    """LLaVA-NeXT (LLaVA 1.6), around a mistral, a llama, a qwen2 or another decoder.

    Source: Liu et al. 2024, https://llava-vl.github.io/blog/2024-01-30-llava-next/.
    """

    model_type = "llava_next"
    causal_lm_class = "LlavaNextForConditionalGeneration"
    base_class = "LlavaNextModel"
    text_type = "llama"
    tied = False
