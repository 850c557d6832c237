"""Base class of encoder-decoder families, and their special tokens."""

from collections.abc import Mapping
from typing import Any, cast

from ordinate.core.checks import need
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, TensorRule


class EncoderDecoderLike(Family):
    """Encoder-decoder families: encoder and decoder layers are expanded separately.

    Must: what `Family` requires; in `rules`, Ordinate names of layer tensors begin with `encoder.` or `decoder.`.
    """

    model_class = EncoderDecoder

    def all_rules(self, shape: Shape) -> list[TensorRule]:
        source = cast(EncoderDecoderShape, shape).encoder_shape
        depths = {True: source.layers, False: shape.layers}
        return [rule for each in self.rules(shape) for rule in each.layers(depths[each.ours.startswith("encoder.")])]


def special_tokens(config: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Read the start, end, padding and suppressed tokens from a config.json, as fields of `EncoderDecoderShape`.

    Args:
        config: the settings of the checkpoint.
        vocabulary: tokens of the decoder: those outside of it are in no text, and are left out.
    """
    named = {name: config.get(name) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id")}
    if named["decoder_start_token_id"] is None:
        # as in transformers
        named["decoder_start_token_id"] = named["bos_token_id"]
    inside = {name: token for name, token in named.items() if token is not None and 0 <= token < vocabulary}
    came = config["eos_token_id"]
    listed = came if isinstance(came, list) else () if came is None else (came,)
    ends = tuple(token for token in listed if 0 <= token < vocabulary)
    words = config.get("bad_words_ids") or []
    need(
        all(len(word) == 1 for word in words),
        "suppressed words must be single tokens",
        f"got bad_words_ids={words!r}",
        "remove the longer ones",
    )
    return {
        "start": inside.get("decoder_start_token_id"),
        "end": ends[0] if len(ends) == 1 else ends,
        "padding": inside.get("pad_token_id"),
        # end tokens are not suppressed in transformers
        "suppress_tokens": tuple(token for (token,) in words if 0 <= token < vocabulary and token not in ends),
    }


def special_tokens_config(shape: EncoderDecoderShape) -> dict[str, Any]:
    """Return the config.json keys of the special tokens."""
    ends = shape.end_tokens
    found = {"pad_token_id": shape.padding, "eos_token_id": ends[0] if len(ends) == 1 else list(ends) or None}
    # transformers has no null there
    found |= {} if shape.start is None else {"decoder_start_token_id": shape.start}
    return found | ({"bad_words_ids": [[token] for token in shape.suppress_tokens]} if shape.suppress_tokens else {})


def need_encoder_decoder(family: Family, shape: Shape, **wanted: Any) -> EncoderDecoderShape:
    """Return the full shape, or raise a ValueError unless it is an encoder-decoder with these settings."""
    need(
        isinstance(shape, EncoderDecoderShape),
        f"a {family.model_type} must be an encoder-decoder",
        f"got {type(shape).__name__}",
        "choose another family, or use save_pretrained",
    )
    full = shape.with_defaults()
    other = [name for name, value in wanted.items() if getattr(full, name) != value]
    need(
        not other,
        f"a {family.model_type} requires " + ", ".join(f"{name}={wanted[name]!r}" for name in other),
        "got " + ", ".join(repr(getattr(full, name)) for name in other),
        "choose another family, or use save_pretrained",
    )
    return cast(EncoderDecoderShape, full)
