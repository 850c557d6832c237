"""Base class of encoder-decoder families, and their special tokens."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from ordinate.core.checks import need
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, TensorRule
from ordinate.pretrained.generation_settings import unapplied

NO_RULES: Mapping[str, Any] = {
    "suppress_tokens": (),
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_length": 0,
}
"""Fields of a shape without rules that change the probabilities of tokens; their names are those of config.json."""
APPLIED = (*NO_RULES, "min_new_tokens", "renormalize_logits")
"""Generation settings that are always applied."""


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
    ends = [token for token in listed if 0 <= token < vocabulary]
    # the first of them is that of the texts which have to end
    ends = tuple(sorted(ends, key=lambda token: token != _forced_end(config)))
    rules, first = _rules(config, ends, vocabulary), config.get("forced_bos_token_id")
    return {
        "start": inside.get("decoder_start_token_id"),
        "end": ends[0] if len(ends) == 1 else ends,
        "padding": inside.get("pad_token_id"),
        **rules,
        "first_token": first if first is not None and 0 <= first < vocabulary else None,
        # a token that is forced has probability 1 in any case
        "renormalize": bool(config.get("renormalize_logits")) and rules != NO_RULES,
        "force_end": _forced_end(config) in ends,
    }


def _rules(config: Mapping[str, Any], ends: Sequence[int], vocabulary: int) -> dict[str, Any]:
    """Read the rules of generation that change the probabilities of tokens, as fields of `EncoderDecoderShape`."""
    # end tokens that are bad words are not suppressed in transformers
    words = [word[0] for word in config.get("bad_words_ids") or () if len(word) == 1 and word[0] not in ends]
    never = [token for token in (*words, *(config.get("suppress_tokens") or ())) if 0 <= token < vocabulary]
    told = {name: usual if config.get(name) is None else config[name] for name, usual in NO_RULES.items()}
    new = config.get("min_new_tokens")
    # it takes precedence there, and leaves out the start token; without an end token neither has an effect
    least = told["min_length"] if new is None else new + 1
    return told | {"suppress_tokens": tuple(dict.fromkeys(never)), "min_length": least if ends else 0}


def _forced_end(config: Mapping[str, Any]) -> int | None:
    """Return the token with which the longest texts end; None: any, or one of several."""
    forced = config.get("forced_eos_token_id")
    single = isinstance(forced, list) and len(forced) == 1
    return forced[0] if single else None if isinstance(forced, list) else forced


def _unapplied(config: Mapping[str, Any], shape: EncoderDecoderShape) -> str:
    """Return the generation settings that are not applied, as text."""
    words, applied = config.get("bad_words_ids") or (), set(APPLIED)
    applied |= {"bad_words_ids"} if all(len(word) == 1 for word in words) else set()
    applied |= {"forced_eos_token_id"} if shape.force_end else set()
    # one outside of the vocabulary cannot be written
    return unapplied(config, applied | ({"forced_bos_token_id"} if shape.first_token is not None else set()))


def special_tokens_config(shape: EncoderDecoderShape) -> dict[str, Any]:
    """Return the config.json keys of the special tokens."""
    ends = shape.end_tokens
    found = {"pad_token_id": shape.padding, "eos_token_id": ends[0] if len(ends) == 1 else list(ends) or None}
    # transformers has no null there
    found |= {} if shape.start is None else {"decoder_start_token_id": shape.start}
    rules = {name: getattr(shape, name) for name in NO_RULES} | {"suppress_tokens": list(shape.suppress_tokens)}
    found |= {name: value for name, value in rules.items() if value not in (NO_RULES[name], [])}
    found |= {} if shape.first_token is None else {"forced_bos_token_id": shape.first_token}
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
