"""SmolVLM, SmolVLM 2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained._wrapper import Wrapper


class SmolVLM(Wrapper):
    """SmolVLM and SmolVLM 2, Idefics3 with small language models, around a llama.

    Source: Marafioti et al. 2025, https://arxiv.org/abs/2504.05299.
    """

    model_type = "smolvlm"
    causal_lm_class = "SmolVLMForConditionalGeneration"
    base_class = "SmolVLMModel"
    text_type = "llama"
    text_defaults: ClassVar[Mapping[str, Any]] = {"rms_norm_eps": 1e-5}
    tied = False
    part = "text_model"
