"""Gemma 3, its language models."""

from collections.abc import Mapping
from typing import Any

from ordinate.pretrained.gemma3_like import Gemma3Like


class Gemma3Text(Gemma3Like):
    """Gemma 3: Gemma 2 with windows in five of six layers, which have a RoPE of their own, and QK-norm for soft caps.

    Source: Gemma Team 2025, https://arxiv.org/abs/2503.19786.
    """

    @classmethod
    def read_as(cls, config: Mapping[str, Any]) -> str:
        return f"{cls.model_type}_encoder" if config.get("use_bidirectional_attention") else cls.model_type
