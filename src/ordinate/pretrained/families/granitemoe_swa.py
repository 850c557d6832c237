"""Granite with experts and sliding windows."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.granite_moe_like import RENAMED, GraniteMoeSharedLike
from ordinate.pretrained.granite_swa_like import GraniteSwaLike


class GranitemoeSwa(GraniteSwaLike, GraniteMoeSharedLike):
    """Granite with sliding windows, sinks, a mixture of experts, and a network beside them if so set.

    Source: the model `GraniteMoeSWAForCausalLM` of transformers, version 5, of the Granite Team, IBM.
    """

    model_type = "granitemoe_swa"
    base_class = "GraniteMoeSWAModel"
    causal_lm_class = "GraniteMoeSWAForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {**GraniteMoeSharedLike.defaults, **GraniteSwaLike.window_defaults}
    # transformers reads no others for it
    expert_names = tuple(RENAMED.values())
