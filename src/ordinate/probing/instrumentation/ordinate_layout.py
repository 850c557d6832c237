"""The probed part of an Ordinate model, and how to run it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.geometry import Geometry
from ordinate.models.backbone import LayerStack
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.vision import VisionTransformer
from ordinate.probing._adapter import Inputs, ModelKind, NotApplicable

ORDINATE_MODELS = (Decoder, Encoder, EncoderDecoder, VisionTransformer)
"""Classes of Ordinate models."""


@dataclass(frozen=True, eq=False)
class ProbedPart:
    """The probed part of an Ordinate model.

    Args:
        kind: kind of model.
        layers: its layers; for an encoder-decoder those of the encoder.
        tokens: the token embedding; None for images.
        run: forward pass on token ids or images; returns logits if there is a head.
        scale: factor applied to the token embeddings.
        prefix: number of leading tokens that are not patches.
        grid: rows and columns of patches.
        image: channels, rows and columns of an image [pixels].
        widen: linear map of token embeddings to the width of the model; None: none.
        narrow_positions: whether positions are added before that map, as in encoders, not after it.
        narrow_norm: whether they are normalised before it.
    """

    kind: ModelKind
    layers: LayerStack
    tokens: nn.Embedding | None
    run: Callable[[Tensor], Float[Tensor, "b places classes"] | None]
    scale: float = 1.0
    prefix: int = 0
    grid: tuple[int, int] | None = None
    image: tuple[int, int, int] | None = None
    widen: nn.Module | None = None
    narrow_positions: bool = False
    narrow_norm: bool = False

    @classmethod
    def from_model(cls, model: Any) -> "ProbedPart":
        """Return the probed part of a model."""
        if isinstance(model, Decoder):
            run, scale = partial(_next_tokens, model), embedding_factor(model)
            return cls("decoder", model, model.tokens, run, scale, widen=model.widen_embeddings)
        if isinstance(model, Encoder):
            run, scale, widen = partial(_masked, model), embedding_factor(model), model.widen_embeddings
            narrow = {
                "narrow_positions": widen is not None,
                "narrow_norm": not isinstance(model.narrow_norm, nn.Identity),
            }
            return cls("encoder", model, model.tokens, run, scale, widen=widen, **narrow)
        if isinstance(model, EncoderDecoder):
            table = model.tokens if model.source_tokens is None else model.source_tokens
            run = partial(_encoded, model)
            return cls("encoder-decoder", model.encoder, table, run, embedding_factor(model))
        shape = cast(VisionTransformer, model).vision
        sizes = shape.leading_tokens, shape.patch_grid(*shape.image), (shape.channels, *shape.image)
        return cls("vision", model, None, partial(_classes, model), 1.0, *sizes)

    @property
    def weight(self) -> Tensor:
        """A parameter, for its dtype and device."""
        return next(self.layers.parameters()).detach()

    @property
    def columns(self) -> int:
        """Width of the token embeddings before the first layer; a scheme may append further columns."""
        return self.layers.shape.width - (0 if self.narrow_positions else self.layers.first_scheme.appended_width)

    def widened(self, x: Tensor) -> Tensor:
        """Take vectors of the token table to the width of the model.

        Raises:
            NotApplicable: no linear map alone takes them there.
        """
        self.need_linear_map()
        return x if self.widen is None else self.widen(x)

    def need_linear_map(self) -> None:
        """Raise unless token embeddings are taken to the width of the model by a linear map alone, if at all."""
        if self.narrow_norm:
            told = f"have {cast(nn.Embedding, self.tokens).embedding_dim} columns, not the {self.layers.shape.width}"
            raise NotApplicable(f"the token embeddings {told} of the model, and no linear map alone takes them there")

    def positions(self, length: int) -> Tensor:
        """Return what the first scheme adds or appends to token embeddings at each position, in the model's width."""
        scheme, own = self.layers.first_scheme, self.narrow_positions
        columns = cast(nn.Embedding, self.tokens).embedding_dim if own else self.columns
        nothing = self.weight.new_zeros(1, length, columns)
        made = scheme.at(Geometry.causal(length, device=nothing.device)).embed(nothing)[0]
        return self.widened(made) if own else made

    def example(self, model: Any) -> Inputs:
        """Return a short input."""
        weight = self.weight
        if isinstance(model, VisionTransformer):
            size = 1, model.vision.channels, *model.vision.image
            pixels = torch.randn(size, generator=torch.Generator().manual_seed(0))
            return Inputs(images=pixels.to(weight))
        return Inputs(torch.arange(8, device=weight.device)[None] % cast(nn.Embedding, self.tokens).num_embeddings)


def embedding_factor(model: Decoder | Encoder | EncoderDecoder) -> float:
    """Return the factor of a model's token embeddings."""
    return model.shape.embedding_factor(model.tokens.weight.dtype)


def _next_tokens(model: Decoder, ids: Tensor) -> Tensor | None:
    if model.shape.head == "next_token":
        return model(ids)
    model.hidden_states(ids)
    return None


def _masked(model: Encoder, ids: Tensor) -> Tensor | None:
    out = model(ids)
    return None if model.masked is None else model.logits(out)


def _encoded(model: EncoderDecoder, ids: Tensor) -> None:
    model.encode(ids)


def _classes(model: VisionTransformer, images: Tensor) -> Tensor | None:
    out = model(images)
    return None if model.head is None else model.logits(out)[:, None]
