"""Aya Vision."""

from ordinate.pretrained._wrapper import Wrapper


class AyaVision(Wrapper):
    """Aya Vision, around a cohere2.

    Source: Dash et al. 2025, https://arxiv.org/abs/2505.08751.
    """

    model_type = "aya_vision"
    causal_lm_class = "AyaVisionForConditionalGeneration"
    base_class = "AyaVisionModel"
    text_type = "cohere2"
