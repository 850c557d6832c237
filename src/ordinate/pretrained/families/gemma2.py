"""Gemma 2."""

from ordinate.pretrained.gemma2_like import Gemma2Like


class Gemma2(Gemma2Like):
    """Gemma 2: Gemma with norms around branches, windows in every other layer, soft caps of scores and logits.

    Source: Gemma Team 2024, https://arxiv.org/abs/2408.00118.
    """

    model_type = "gemma2"
    base_class = "Gemma2Model"
    causal_lm_class = "Gemma2ForCausalLM"
    defaults = Gemma2Like.usual
