"""Mamba."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.mamba_like import MambaLike
from ordinate.pretrained.mixer_only_like import TABLE


class Mamba(MambaLike):
    """Mamba: layers of one mixer, without a feed-forward and without positions.

    Source: Gu and Dao 2023, https://arxiv.org/abs/2312.00752.
    """

    model_type = "mamba"
    base_class = "MambaModel"
    causal_lm_class = "MambaForCausalLM"
    # of early files
    renamed: ClassVar[Mapping[str, str]] = {TABLE: "backbone.embedding."}
    defaults: ClassVar[Mapping[str, Any]] = MambaLike.usual
