"""Idefics3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained._wrapper import Wrapper


class Idefics3(Wrapper):
    """Idefics3, around a llama.

    Source: Laurençon et al. 2024, https://arxiv.org/abs/2408.12637.
    """

    model_type = "idefics3"
    causal_lm_class = "Idefics3ForConditionalGeneration"
    base_class = "Idefics3Model"
    text_type = "llama"
    text_defaults: ClassVar[Mapping[str, Any]] = {"rms_norm_eps": 1e-5}
    tied = False
    part = "text_model"
