"""EXAONE 4."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.exaone_like import ExaoneLike
from ordinate.pretrained.llama_like import OUT_NORMS


class Exaone4(ExaoneLike):
    """EXAONE 4: RoPE in layers with a sliding window and none in the others.

    Without a window all layers have RoPE. Queries, keys and the outputs of branches are normalised.

    Source: LG AI Research 2025, EXAONE 4.0, https://arxiv.org/abs/2507.11407.
    """

    model_type = "exaone4"
    base_class = "Exaone4Model"
    causal_lm_class = "Exaone4ForCausalLM"
    span_prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = ExaoneLike.usual
    norm_position = "res_post"
    norms = OUT_NORMS
