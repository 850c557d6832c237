"""What is found out about a model that is not ours before it is measured."""

import math
from itertools import count
from typing import Any

import torch
from torch import nn

from ordinate.shapes import Keys, Queries, Tokens, Values
from ordinate.subject import Inputs, Kind, Unfit, Watch

LENGTH = 8
"""Tokens of the text by which a model is examined."""


def need_plain(model: nn.Module) -> None:
    """Raise unless the weights of a model are floating-point numbers that are there."""
    if getattr(model, "is_quantized", False) or getattr(model, "quantization_method", None) is not None:
        raise Unfit("its weights are quantised; load it in the type that it was trained in")
    for name, parameter in model.named_parameters():
        if parameter.is_meta or not parameter.is_floating_point():
            raise Unfit(f"its weights are no floating-point numbers: {name} is {parameter.dtype}, {parameter.device}")


def measured_part(model: Any) -> tuple[Any, Kind]:
    """The part of a model that is measured, and what it reads: of an encoder-decoder the encoder, of CLIP the images.

    Whether a text is read from left to right is not known yet; it is called a decoder here.
    """
    if getattr(model.config, "is_encoder_decoder", False):
        return model.get_encoder(), "encoder-decoder"
    if isinstance(getattr(model, "vision_model", None), nn.Module):
        return model.vision_model, "vision"
    return model, "vision" if getattr(model, "main_input_name", "") == "pixel_values" else "decoder"


def example_of(part: Any, kind: Kind, rows: int = 2, length: int = LENGTH) -> Inputs:
    """Short random texts, or images, for a model."""
    generator, config = torch.Generator().manual_seed(0), part.config
    weight = next(part.parameters())
    if kind == "vision":
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        pixels = torch.randn(rows, config.num_channels, height, width, generator=generator)
        return Inputs(images=pixels.to(weight.device, weight.dtype))
    vocabulary = part.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocabulary, (rows, length), generator=generator)
    # some models do not count padding
    padding = getattr(config, "pad_token_id", None)
    ids = torch.where(ids == padding, (ids + 1) % vocabulary, ids) if padding is not None else ids
    return Inputs(ids.to(weight.device))


def grid_of(config: Any, length: int) -> tuple[int, int]:
    """Rows and columns of the patches of an image; where layers before have merged some, of what those make.

    Args:
        config: sizes of images and patches.
        length: tokens of the layers that are measured.

    Raises:
        Unfit: it does not say them.
    """
    given: list[Any] = [getattr(config, name, None) for name in ("image_size", "patch_size")]
    if None in given:
        raise Unfit("how large its images and patches are its configuration does not say (image_size, patch_size)")
    (height, width), (tall, wide) = ((size, size) if isinstance(size, int) else tuple(size) for size in given)
    rows, columns = height // tall, width // wide
    # what is left over at an edge is merged with nothing
    grids = ((math.ceil(rows / merged), math.ceil(columns / merged)) for merged in count(1))
    return next(grid for grid in grids if math.prod(grid) <= length)


class Sizes(Watch):
    """Notes the sizes of heads and streams, and whether queries and keys are rotated."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, int, int]] = []
        self.streams: set[tuple[int, ...]] = set()
        self.rotated: set[int] = set()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stream."""
        return next(iter(self.streams))

    def stream(self, layer: int, x: Tokens) -> Tokens | None:
        """Its shape."""
        self.streams.add(tuple(x.shape))
        return None

    def raw(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys] | None:
        """That the layer rotates."""
        self.rotated.add(layer)
        return None

    def marked(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        """Heads of queries and keys, and tokens."""
        self.heads.append((q.shape[1], k.shape[1], q.shape[2]))
        return None
