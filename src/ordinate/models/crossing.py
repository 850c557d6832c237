"""What the tokens of a target look at in their source."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.attention_mixer import AttentionMixer
from ordinate.geometry import Geometry
from ordinate.models.block import Look
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.generate import evaluating
from ordinate.models.memory import Memory
from ordinate.shapes import Ids, Tokens, Weights


@dataclass(frozen=True, eq=False)
class Watched(Look):
    """A look that is written down.

    Args:
        weights: gets the weights, layer after layer.
    """

    weights: list[Weights] = field(default_factory=list)

    def find(self, cross: AttentionMixer, x: Tokens) -> Tokens:
        """What tokens find there, as always."""
        k = self.seen.k
        # of values that each tell one key from all others, attention gives its weights back
        each = torch.eye(k.shape[2], dtype=k.dtype, device=k.device).expand(*k.shape[:3], k.shape[2])
        self.weights.append(cross.attended(cross.queries(x, self.at), k, each, self.at))
        return super().find(cross, x)


def cross_weights(
    model: EncoderDecoder, target: Ids, memory: Memory, where: Geometry | None = None
) -> list[Float[Tensor, "b h i j"]]:
    """How much each token of a target takes from each token of its source: of every layer, of every head.

    Args:
        model: what looks.
        target: tokens, the first of them the start.
        memory: the sources, as `model.read` gave them.
        where: where the target stands; None: one text from left to right, all of it real.
    """
    where = Geometry.causal(target.shape[1], device=target.device) if where is None else where
    watched: list[Weights] = []
    with torch.inference_mode(), evaluating(model):
        looks = [Watched(look.seen, look.at, watched) for look in model.looks(where, memory)]
        model.decode(target, where, looks, None)
    return watched
