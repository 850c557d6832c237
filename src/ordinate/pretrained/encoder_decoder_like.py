"""Base class of encoder-decoder families, and their special tokens."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from ordinate.core.checks import need
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.next_token_rules import NextTokenRules
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, TensorRule
from ordinate.pretrained.generation_settings import (
    UNAPPLIED,
    end_tokens,
    read_rules,
    unapplied,
    with_renormalisation,
)


class EncoderDecoderLike(Family):
    """Encoder-decoder families: encoder and decoder layers are expanded separately.

    Must: what `Family` requires; in `rules`, Ordinate names of layer tensors begin with `encoder.` or `decoder.`.
    """

    model_class = EncoderDecoder

    def read_config(self, given: Mapping[str, Any], names: Collection[str]) -> Shape:
        shape = super().read_config(given, names)
        told = _unapplied(self.settings, cast(EncoderDecoderShape, shape))
        self.warning = f"translate and beam_search do not apply {told}" if told else ""
        return shape

    def all_rules(self, shape: Shape) -> list[TensorRule]:
        source = cast(EncoderDecoderShape, shape).encoder_shape
        depths = {True: source.layers, False: shape.layers}
        return [rule for each in self.rules(shape) for rule in each.layers(depths[each.ours.startswith("encoder.")])]


def special_tokens(config: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Read the special tokens and the rules of generation from a config.json, as fields of `EncoderDecoderShape`.

    Args:
        config: the settings of the checkpoint.
        vocabulary: tokens of the decoder: those outside of it are in no text, and are left out.
    """
    named = {name: config.get(name) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id")}
    if named["decoder_start_token_id"] is None:
        # as in transformers
        named["decoder_start_token_id"] = named["bos_token_id"]
    inside = {name: token for name, token in named.items() if token is not None and 0 <= token < vocabulary}
    ends = end_tokens(config, vocabulary)
    return {
        "start": inside.get("decoder_start_token_id"),
        "end": ends[0] if len(ends) == 1 else ends,
        "padding": inside.get("pad_token_id"),
        "rules": _within(read_rules(config, ends), vocabulary),
    }


def _within(rules: NextTokenRules, vocabulary: int) -> NextTokenRules:
    """Return the rules without tokens outside of the vocabulary, which no text has."""
    known, first = range(vocabulary), rules.forced_bos_token_id
    some = replace(
        rules,
        sequence_bias=tuple(pair for pair in rules.sequence_bias if all(token in known for token in pair[0])),
        bad_words_ids=tuple(word for word in rules.bad_words_ids if all(token in known for token in word)),
        forced_bos_token_id=first if first in known else None,
        forced_eos_token_id=tuple(token for token in rules.forced_eos_token_id if token in known),
        suppress_tokens=tuple(token for token in rules.suppress_tokens if token in known),
        begin_suppress_tokens=tuple(token for token in rules.begin_suppress_tokens if token in known),
        renormalize_logits=False,
    )
    return with_renormalisation(some, wanted=rules.renormalize_logits)


def _unapplied(config: Mapping[str, Any], shape: EncoderDecoderShape) -> str:
    """Return the generation settings that are not applied, as text."""
    # one outside of the vocabulary cannot be written
    lost = [name for name in ("forced_bos_token_id", "forced_eos_token_id") if name not in shape.rules.active]
    return unapplied(config, {**UNAPPLIED, **dict.fromkeys(lost)})


def special_tokens_config(shape: EncoderDecoderShape) -> dict[str, Any]:
    """Return the config.json keys of the special tokens."""
    ends = shape.end_tokens
    found = {"pad_token_id": shape.padding, "eos_token_id": ends[0] if len(ends) == 1 else list(ends) or None}
    # transformers has no null there
    found |= {} if shape.start is None else {"decoder_start_token_id": shape.start}
    # JSON has lists in place of tuples
    return found | json.loads(json.dumps(shape.rules.active))


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
