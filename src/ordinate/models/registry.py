"""Registry of the model kinds: decoder, encoder, encoder-decoder, vision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape, VisionTransformer

Model = Decoder | Encoder | EncoderDecoder | VisionTransformer


@dataclass(frozen=True)
class ModelKind:
    """A model kind.

    Args:
        model: model class.
        shape: class of its hyperparameters.
        causal: whether its mixers need a causal form.
        bidirectional: whether its mixers need a bidirectional form.
        command: CLI command that uses a trained model of this kind.
    """

    model: type[Model]
    shape: type[Shape]
    causal: bool
    bidirectional: bool
    command: str

    def build(self, shape: Shape) -> Model:
        """Build a model; `shape` must be an instance of the kind's shape class."""
        return cast(Any, self.model)(shape)


MODEL_KINDS: Mapping[str, ModelKind] = {
    "decoder": ModelKind(Decoder, Shape, causal=True, bidirectional=False, command="generate"),
    "encoder": ModelKind(Encoder, EncoderShape, causal=False, bidirectional=True, command="fill"),
    "encoder-decoder": ModelKind(
        EncoderDecoder, EncoderDecoderShape, causal=True, bidirectional=True, command="translate"
    ),
    "vision": ModelKind(VisionTransformer, VisionShape, causal=False, bidirectional=True, command="classify"),
}
