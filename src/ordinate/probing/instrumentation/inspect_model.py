"""Inspection of an external model: floating-point weights, the probed part, a test input, sizes of activations."""

import math
from itertools import count
from typing import Any

import torch
from torch import nn

from ordinate.core.shapes import Keys, Queries, Tokens, Values
from ordinate.data.tokenizer import Tokenizer
from ordinate.probing._adapter import Hooks, Inputs, ModelKind, NotApplicable
from ordinate.probing.instrumentation.patching import evaluation_mode

LENGTH = 8
"""Tokens of the text for the inspection."""


def need_float_weights(model: nn.Module) -> None:
    """Raise unless all parameters are materialised and floating-point."""
    if getattr(model, "is_quantized", False) or getattr(model, "quantization_method", None) is not None:
        raise NotApplicable("its weights are quantised; load it in the data type of training")
    for name, parameter in model.named_parameters():
        if parameter.is_meta or not parameter.is_floating_point():
            raise NotApplicable(
                f"its weights must be floating-point tensors: {name} is {parameter.dtype}, {parameter.device}"
            )


def has_both_sides(model: Any) -> bool:
    """Whether a transformers model is an encoder-decoder; the configuration of an encoder alone may say that too."""
    said = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return bool(said) and model.get_decoder() is not model


def probed_part(model: Any) -> tuple[Any, ModelKind]:
    """Return the probed part of a model and its kind: the encoder of an encoder-decoder, the vision model of CLIP.

    Of a language model that may be given images (Llama 4) the whole, which is given texts. Whether a text model is
    causal is not known yet; its kind is "decoder" until then.
    """
    if has_both_sides(model):
        return model.get_encoder(), "encoder-decoder"
    reads_text = getattr(model, "main_input_name", "") == "input_ids"
    language = reads_text and getattr(model, "get_output_embeddings", lambda: None)() is not None
    if isinstance(getattr(model, "vision_model", None), nn.Module) and not language:
        return model.vision_model, "vision"
    return model, "vision" if getattr(model, "main_input_name", "") == "pixel_values" else "decoder"


def token_embedding(part: Any, example: Inputs) -> Any:
    """Return the module that embeds the tokens: of several with one weight (`T5EncoderModel`) the one called."""
    named, called = part.get_input_embeddings(), list[nn.Module]()
    same = [module for module in part.modules() if isinstance(module, nn.Embedding) and module.weight is named.weight]
    if len(same) < 2:
        return named
    hooks = [module.register_forward_hook(lambda module, *_: called.append(module)) for module in same]
    try:
        with evaluation_mode(part):
            part(input_ids=example.ids)
    finally:
        for hook in hooks:
            hook.remove()
    return called[0] if called else named


def example_input(part: Any, kind: ModelKind, rows: int = 2, length: int = LENGTH) -> Inputs:
    """Return short random texts, or images, for a model."""
    generator, config = torch.Generator().manual_seed(0), part.config
    weight = next(part.parameters())
    if kind == "vision":
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        pixels = torch.randn(rows, config.num_channels, height, width, generator=generator)
        return Inputs(images=pixels.to(weight.device, weight.dtype))
    vocabulary = part.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocabulary, (rows, length), generator=generator)
    # some models skip padding tokens when they count positions
    padding = getattr(config, "pad_token_id", None)
    ids = torch.where(ids == padding, (ids + 1) % vocabulary, ids) if padding is not None else ids
    return Inputs(ids.to(weight.device))


def special_tokens(config: Any, tokenizer: Tokenizer | None, rows: int) -> frozenset[int]:
    """Return the special tokens that a configuration of transformers (`pad_token_id`, ...) and a tokenizer name.

    Args:
        config: the configuration.
        tokenizer: the tokenizer; None: none.
        rows: size of the vocabulary.
    """
    named = [value for name, value in config.to_dict().items() if name.endswith("_token_id")]
    listed = [token for value in named for token in (value if isinstance(value, list) else [value])]
    listed += [] if tokenizer is None else tokenizer.special_tokens
    return frozenset(token for token in listed if isinstance(token, int) and 0 <= token < rows)


def patch_grid(config: Any, length: int) -> tuple[int, int]:
    """Return rows and columns of the patches of an image, after patch merging by earlier stages.

    Args:
        config: configuration with the sizes of images and patches.
        length: tokens of the probed layers.

    Raises:
        NotApplicable: the configuration lacks these sizes.
    """
    given: list[Any] = [getattr(config, name, None) for name in ("image_size", "patch_size")]
    if None in given:
        raise NotApplicable(
            "the configuration does not say how large images and patches are (image_size, patch_size)"
        )
    (height, width), (tall, wide) = ((size, size) if isinstance(size, int) else tuple(size) for size in given)
    rows, columns = height // tall, width // wide
    # a remainder at an edge is padded: round up
    grids = ((math.ceil(rows / merged), math.ceil(columns / merged)) for merged in count(1))
    return next(grid for grid in grids if math.prod(grid) <= length)


class ActivationShapes(Hooks):
    """Record the shapes of heads and residual stream, and which layers apply RoPE."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, int, int]] = []
        self.streams: set[tuple[int, ...]] = set()
        self.rotated: set[int] = set()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the residual stream."""
        return next(iter(self.streams))

    def residual(self, layer: int, x: Tokens) -> Tokens | None:
        self.streams.add(tuple(x.shape))
        return None

    def qk_before_rope(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys] | None:
        self.rotated.add(layer)
        return None

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> tuple[Queries, Keys, Values] | None:
        self.heads.append((q.shape[1], k.shape[1], q.shape[2]))
        return None
