"""Llama 4 of texts and images."""

from collections.abc import Mapping
from typing import Any

from ordinate.pretrained._wrapper import TIED, Wrapper


class Llama4(Wrapper):
    """Llama 4 of texts and images (Scout, Maverick), around a llama4_text.

    The class around it has no base class. In transformers 5.24 it does not run, but its language model does.

    Source: Meta AI 2025, Llama 4, https://ai.meta.com/blog/llama-4-multimodal-intelligence.
    """

    model_type = "llama4"
    causal_lm_class = "Llama4ForConditionalGeneration"
    base_class = "Llama4ForConditionalGeneration"
    text_type = "llama4_text"
    text_type_fixed = True
    tied = False
    text_ties = True

    def text_config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        # whether the head is tied, the language model alone says
        return super().text_config({name: value for name, value in given.items() if name != TIED})
