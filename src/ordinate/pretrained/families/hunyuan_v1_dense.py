"""Hunyuan."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.hunyuan_like import HunyuanLike


class HunyuanV1Dense(HunyuanLike):
    """Hunyuan without experts: Llama with norms of queries and keys after RoPE, whose base an alpha may multiply.

    Source: Tencent Hunyuan Team 2025, Hunyuan-7B, https://github.com/Tencent-Hunyuan/Hunyuan-7B.
    """

    model_type = "hunyuan_v1_dense"
    base_class = "HunYuanDenseV1Model"
    causal_lm_class = "HunYuanDenseV1ForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = HunyuanLike.usual
