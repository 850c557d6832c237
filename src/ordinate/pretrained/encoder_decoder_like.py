"""Base class of encoder-decoder families, and their special tokens."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from ordinate.core.checks import need
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, TensorRule
from ordinate.pretrained.generation_settings import unapplied


class EncoderDecoderLike(Family):
    """Encoder-decoder families: encoder and decoder layers are expanded separately.

    Must: what `Family` requires; in `rules`, Ordinate names of layer tensors begin with `encoder.` or `decoder.`.
    """

    model_class = EncoderDecoder

    def read_config(self, given: Mapping[str, Any], names: Collection[str]) -> Shape:
        shape = super().read_config(given, names)
        told = _unapplied(self.settings)
        self.warning = f"translate and beam_search do not apply {told}" if told else ""
        return shape

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
    # end tokens that are bad words are not suppressed in transformers
    words = [word[0] for word in config.get("bad_words_ids") or () if len(word) == 1 and word[0] not in ends]
    never = [token for token in (*words, *(config.get("suppress_tokens") or ())) if 0 <= token < vocabulary]
    return {
        "start": inside.get("decoder_start_token_id"),
        "end": ends[0] if len(ends) == 1 else ends,
        "padding": inside.get("pad_token_id"),
        "suppress_tokens": tuple(dict.fromkeys(never)),
        "renormalize": bool(config.get("renormalize_logits")) and bool(never),
        "force_end": _forces_end(config, ends),
    }


def _forces_end(config: Mapping[str, Any], ends: Sequence[int]) -> bool:
    """Whether the longest texts end with the end token; False too if they end with another one."""
    forced = config.get("forced_eos_token_id")
    return forced is not None and (forced if isinstance(forced, list) else [forced]) == list(ends[:1])


def _unapplied(config: Mapping[str, Any]) -> str:
    """Return the generation settings that are not applied, as text."""
    words, ends = config.get("bad_words_ids") or (), config["eos_token_id"]
    applied = {"suppress_tokens", "renormalize_logits"}
    applied |= {"bad_words_ids"} if all(len(word) == 1 for word in words) else set()
    listed = ends if isinstance(ends, list) else [ends]
    return unapplied(config, applied | ({"forced_eos_token_id"} if _forces_end(config, listed) else set()))


def special_tokens_config(shape: EncoderDecoderShape) -> dict[str, Any]:
    """Return the config.json keys of the special tokens."""
    ends = shape.end_tokens
    found = {"pad_token_id": shape.padding, "eos_token_id": ends[0] if len(ends) == 1 else list(ends) or None}
    # transformers has no null there
    found |= {} if shape.start is None else {"decoder_start_token_id": shape.start}
    found |= {"suppress_tokens": list(shape.suppress_tokens)} if shape.suppress_tokens else {}
    found |= {"renormalize_logits": True} if shape.renormalize else {}
    return found | ({"forced_eos_token_id": shape.end_token} if shape.force_end else {})


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
