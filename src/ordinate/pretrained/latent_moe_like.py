"""Base class of decoders with multi-head latent attention and experts."""

import re
from typing import ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import DeepseekMoeLike
from ordinate.pretrained.latent_like import LatentLike

PREDICTORS = "num_nextn_predict_layers"
"""The key of the number of layers behind those of the model, for tokens after the next one."""


class LatentMoeLike(LatentLike, DeepseekMoeLike):
    """Decoders with multi-head latent attention, and experts as in DeepSeek-V3.

    Layers that predict tokens after the next one are not read, as in transformers.

    Must: as `LlamaLike`.
    May: `predictor`; what `LatentLike` and `DeepseekMoeLike` may.
    """

    predictor: ClassVar[int | None] = None
    """Index of the layer for tokens after the next one in published models; None: they have none."""

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one of the layers behind the last."""
        found = re.match(rf"(?:{re.escape(self.prefix)})?layers\.(\d+)\.", name)
        layer = -1 if found is None else int(found[1])
        behind = shape.layers <= layer < shape.layers + self.settings.get(PREDICTORS, 0)
        return super().ignores(name, shape) or behind or shape.layers <= layer == self.predictor
