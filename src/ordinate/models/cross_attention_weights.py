"""Cross-attention weights of an encoder-decoder."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Ids, Tokens, Weights
from ordinate.mixers._projections import AttentionMixer
from ordinate.models._generate import evaluation_mode
from ordinate.models.block import CrossAttentionInput
from ordinate.models.encoded_source import EncodedSource
from ordinate.models.encoder_decoder import EncoderDecoder


@dataclass(frozen=True, eq=False)
class RecordedCrossAttention(CrossAttentionInput):
    """Cross-attention input that also records the attention weights.

    Args:
        weights: list to which the weights of each layer are appended.
    """

    weights: list[Weights] = field(default_factory=list)

    def attend(self, cross: AttentionMixer, x: Tokens) -> Tokens:
        """Compute cross-attention, and record its weights."""
        k = self.key_values.k
        # with the identity matrix as values, the attention output is the weights themselves
        identity = torch.eye(k.shape[2], dtype=k.dtype, device=k.device).expand(*k.shape[:3], k.shape[2])
        self.weights.append(cross.attention(cross.encoded_queries(x, self.at), k, identity, self.at))
        return super().attend(cross, x)


def cross_attention_weights(
    model: EncoderDecoder, target: Ids, memory: EncodedSource, where: Geometry | None = None
) -> list[Float[Tensor, "b h i j"]]:
    """Cross-attention weights of each layer and head, from target tokens to source tokens.

    Args:
        model: encoder-decoder model.
        target: target tokens, beginning with the start token.
        memory: encoded sources, from `model.encode_source`.
        where: geometry of the target; None: causal, without padding.
    """
    where = Geometry.causal(target.shape[1], device=target.device) if where is None else where
    watched: list[Weights] = []
    with torch.inference_mode(), evaluation_mode(model):
        inputs = [
            RecordedCrossAttention(given.key_values, given.at, watched)
            for given in model.cross_attention_inputs(where, memory)
        ]
        model.decode(target, where, inputs, None)
    return watched
