"""The kinds of models, by the name that a study and a task call them by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.models.vision import Vision, VisionShape

Model = Decoder | Encoder | EncoderDecoder | Vision


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Args:
        model: its class.
        shape: its sizes and choices.
        causal: whether its mixers must read from left to right.
        bidirectional: whether they must read from both sides.
        command: the command that uses a trained one.
    """

    model: type[Model]
    shape: type[Shape]
    causal: bool
    bidirectional: bool
    command: str

    def build(self, shape: Shape) -> Model:
        """A new model of this shape, which must be one of the kind."""
        return cast(Any, self.model)(shape)


KINDS: Mapping[str, Kind] = {
    "decoder": Kind(Decoder, Shape, causal=True, bidirectional=False, command="generate"),
    "encoder": Kind(Encoder, EncoderShape, causal=False, bidirectional=True, command="fill"),
    "encoder-decoder": Kind(
        EncoderDecoder, EncoderDecoderShape, causal=True, bidirectional=True, command="translate"
    ),
    "vision": Kind(Vision, VisionShape, causal=False, bidirectional=True, command="classify"),
}
