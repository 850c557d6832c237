"""Gemma 4 that reads patches and sounds without towers, its language model: 12B."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.gemma4_like import FLAG, Gemma4Like


class Gemma4UnifiedText(Gemma4Like):
    """The language model of a gemma4_unified: a gemma4_text without experts and inputs of layers.

    Source: Gemma Team 2026, Gemma 4, https://ai.google.dev/gemma/docs/core/model_card_4.
    """

    model_type = "gemma4_unified_text"
    base_class = "Gemma4UnifiedTextModel"
    causal_lm_class = "Gemma4UnifiedForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **Gemma4Like.usual,
        "max_position_embeddings": 262_144,
        "sliding_window": 1024,
        FLAG: "vision",
    }
