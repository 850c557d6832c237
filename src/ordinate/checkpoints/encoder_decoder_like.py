"""What published encoder-decoders have in common."""

from collections.abc import Mapping
from typing import Any, cast

from ordinate.checks import need
from ordinate.family import Family, Rule
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape


class EncoderDecoderLike(Family):
    """A family of encoder-decoders: layers of two kinds, and the tokens that begin, end and fill up a text.

    Must: what a family must; the names of our tensors in its rules begin with `encoder.` or `decoder.` where they are
        of a layer.
    """

    kind = EncoderDecoder

    def all_rules(self, shape: Shape) -> list[Rule]:
        """The rules of every layer, of the encoder's and of the decoder's."""
        source = cast(EncoderDecoderShape, shape).source
        depths = {True: source.layers, False: shape.layers}
        return [rule for each in self.rules(shape) for rule in each.layers(depths[each.ours.startswith("encoder.")])]


def tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens that a config.json names, as our shape does."""
    ends = config["eos_token_id"]
    need(isinstance(ends, int), "one token ends a text", f"got eos_token_id={ends!r}", "name one")
    words = config.get("bad_words_ids") or []
    need(
        all(len(word) == 1 for word in words),
        "what is never written are single tokens",
        f"got bad_words_ids={words!r}",
        "leave out longer ones",
    )
    return {
        "start": config["decoder_start_token_id"],
        "end": ends,
        "padding": config["pad_token_id"],
        "never": tuple(token for (token,) in words),
    }


def tokens_config(shape: EncoderDecoderShape) -> dict[str, Any]:
    """What a config.json says of these tokens."""
    said = {"decoder_start_token_id": shape.start, "eos_token_id": shape.end, "pad_token_id": shape.padding}
    return said | ({"bad_words_ids": [[token] for token in shape.never]} if shape.never else {})


def need_plain(family: Family, shape: Shape, **wanted: Any) -> EncoderDecoderShape:
    """The shape, which must be an encoder-decoder's with these choices, in this family's words."""
    need(
        isinstance(shape, EncoderDecoderShape),
        f"a {family.model_type} is an encoder-decoder",
        f"got {type(shape).__name__}",
        "save it as another family, or as our own (save_pretrained)",
    )
    full = shape.full()
    other = [name for name, value in wanted.items() if getattr(full, name) != value]
    need(
        not other,
        f"a {family.model_type} has " + ", ".join(f"{name}={wanted[name]!r}" for name in other),
        "got " + ", ".join(repr(getattr(full, name)) for name in other),
        "save it as another family, or as our own (save_pretrained)",
    )
    return cast(EncoderDecoderShape, full)
