"""Base class of Granite-like decoders."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike, unusual_scale


class GraniteLike(LlamaLike):
    """Granite-like decoders: factors of the embeddings, the scores, the output of each branch and the logits."""

    # transformers has no other
    heads = ()
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_000,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "attention_multiplier": 1.0,
        "logits_scaling": 1.0,
    }
    optional_biases = ("attention_bias",)
    score_options = ("scale",)

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        return {"scale": unusual_scale(config["attention_multiplier"], head_width)}

    def score_config(self, scores: Mapping[str, float | None], head_width: int) -> dict[str, Any]:
        scale = scores["scale"]
        return {"attention_multiplier": head_width**-0.5 if scale is None else scale}

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "embedding_scale": float(config["embedding_multiplier"]),
            "residual_scale": float(config["residual_multiplier"]),
            "logit_scale": 1 / config["logits_scaling"],
        }

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        return {
            "embedding_multiplier": shape.embedding_scale,
            "residual_multiplier": shape.residual_scale,
            "logits_scaling": shortest_near(1 / shape.logit_scale, lambda x: 1 / x == shape.logit_scale),
        }


def shortest_near(number: float, fits: Callable[[float], bool]) -> float:
    """Return a number or a neighbour of it that fits, the one with the fewest digits; itself if none does."""
    near = (math.nextafter(number, 0), number, math.nextafter(number, math.inf))
    return min(filter(fits, near), key=lambda x: len(repr(x)), default=number)
