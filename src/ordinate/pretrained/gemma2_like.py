"""Base class of Gemma 2 and what has its attention."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.gemma_like import PeriGemma
from ordinate.pretrained.sliding_windows import every_nth_whole, layer_types, layer_windows

# without layer_types
EVERY = 2


class Gemma2Like(PeriGemma):
    """Gemma-2-like decoders: windows in every other layer, soft caps of scores and logits.

    Must: as `LlamaLike`.
    """

    usual: ClassVar[Mapping[str, Any]] = {
        **PeriGemma.usual,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    }
    """Default values of Gemma 2."""
    score_options = ("scale", "softcap")

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        cap = config["attn_logit_softcapping"]
        return {**super().scores(config, head_width), "softcap": None if cap is None else float(cap)}

    def score_config(self, scores: Mapping[str, float | None], head_width: int) -> dict[str, Any]:
        return {**super().score_config(scores, head_width), "attn_logit_softcapping": scores["softcap"]}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(every_nth_whole({**config, "sliding_window_pattern": EVERY}))

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return {**super().window_config(shape), "layer_types": layer_types(shape)["layer_types"]}
