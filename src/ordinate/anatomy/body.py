"""The part of one of our models that is measured, and how it is run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.trunk import Layers
from ordinate.models.vision import Vision
from ordinate.subject import Inputs, Kind

OURS = (Decoder, Encoder, EncoderDecoder, Vision)
"""Our models."""


@dataclass(frozen=True, eq=False)
class Body:
    """What is measured of one of our models.

    Args:
        kind: what kind of model it is.
        layers: its layers; of an encoder-decoder those of the encoder.
        tokens: the table of tokens; None: it reads images.
        run: reads tokens or images, and gives logits if there is a head.
        scale: multiplies what the table gives.
        prefix: tokens in front that are no patches.
        grid: rows and columns of patches.
        image: channels, rows and columns of an image [pixels].
    """

    kind: Kind
    layers: Layers
    tokens: nn.Embedding | None
    run: Callable[[Tensor], Float[Tensor, "b places classes"] | None]
    scale: float = 1.0
    prefix: int = 0
    grid: tuple[int, int] | None = None
    image: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, model: Any) -> "Body":
        """That of a model."""
        if isinstance(model, Decoder):
            return cls("decoder", model, model.tokens, model)
        if isinstance(model, Encoder):
            return cls("encoder", model, model.tokens, partial(_masked, model))
        if isinstance(model, EncoderDecoder):
            table = model.tokens if model.source_tokens is None else model.source_tokens
            run = partial(_encoded, model)
            return cls("encoder-decoder", model.encoder, table, run, float(model.shape.embedding_scale))
        shape = cast(Vision, model).vision
        sizes = shape.leading, shape.cells(*shape.image), (shape.channels, *shape.image)
        return cls("vision", model, None, partial(_classes, model), 1.0, *sizes)

    @property
    def weight(self) -> Tensor:
        """A number of its type, on its device."""
        return next(self.layers.parameters()).detach()

    @property
    def columns(self) -> int:
        """Columns of the width that tokens fill; a scheme appends the others."""
        return self.layers.shape.width - self.layers.first_scheme.claims

    def example(self, model: Any) -> Inputs:
        """Something short to read."""
        weight = self.weight
        if isinstance(model, Vision):
            size = 1, model.vision.channels, *model.vision.image
            pixels = torch.randn(size, generator=torch.Generator().manual_seed(0))
            return Inputs(images=pixels.to(weight))
        return Inputs(torch.arange(8, device=weight.device)[None] % cast(nn.Embedding, self.tokens).num_embeddings)


def _masked(model: Encoder, ids: Tensor) -> Tensor | None:
    out = model(ids)
    return None if model.masked is None else model.predict(out)


def _encoded(model: EncoderDecoder, ids: Tensor) -> None:
    model.encode(ids)


def _classes(model: Vision, images: Tensor) -> Tensor | None:
    out = model(images)
    return None if model.head is None else model.predict(out)[:, None]
