"""Gemma 3 as an encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, TensorRule, need_settings
from ordinate.pretrained.decoder_like import PLAIN_LOGITS
from ordinate.pretrained.gemma3_like import Gemma3Like

FLAG, WINDOW = "use_bidirectional_attention", "sliding_window"


class Gemma3TextEncoder(Family):
    """Gemma 3 with `use_bidirectional_attention`, without a head: an encoder of sentence embeddings (EmbeddingGemma).

    Its windows count both sides.

    Source: Schechter Vera et al. 2025, EmbeddingGemma, https://arxiv.org/abs/2509.20354.
    """

    model_class = Encoder
    model_type = Gemma3Like.model_type
    base_class = Gemma3Like.base_class
    prefix = Gemma3Like.prefix
    ignored_suffixes = Gemma3Like.ignored_suffixes
    defaults: ClassVar[Mapping[str, Any]] = {**Gemma3Like.defaults, "architectures": ()}

    def __init__(self) -> None:
        self.decoder = Gemma3Like()

    def architecture(self, shape: Shape) -> str:
        return self.base_class

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        need_settings(self, {FLAG: bool(config[FLAG])}, use_bidirectional_attention=True)
        named = (config["architectures"] or (self.base_class,))[0]
        must = f"a {self.model_type} with {FLAG} is read without a head, as a {self.base_class}"
        need(named == self.base_class, must, f"config.json names a {named}", "load another checkpoint")
        size, must = config[WINDOW], f"{WINDOW} of a {self.model_type} with {FLAG} must be above 1"
        need(size is not None and size > 1, must, f"got {shown(size)}", "load another checkpoint")
        # transformers counts the token itself and half of the others on each side
        made = self.decoder.shape({**config, FLAG: False, WINDOW: size // 2 + 1})
        own = {field.name: getattr(made, field.name) for field in fields(made)}
        return EncoderShape(**own | {"head": "none", "tie_embeddings": True, **PLAIN_LOGITS})

    def config(self, shape: Shape) -> dict[str, Any]:
        must = f"a {self.model_type} with {FLAG} must be an encoder with head='none'"
        fits, came = isinstance(shape, EncoderShape) and shape.head == "none", type(shape).__name__
        need(fits, must, f"got {came}, head={shape.head!r}", "use save_pretrained instead")
        made, must = self.decoder.config(shape), "windows of several tokens"
        need(made[WINDOW] > 1, f"a {self.model_type} has {must}", "got sliding_windows of 1", "use save_pretrained")
        return {
            **made,
            # written as null: otherwise transformers assumes the special tokens of the released models
            **dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos")),
            FLAG: True,
            WINDOW: 2 * (made[WINDOW] - 1),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return self.decoder.rules(shape)
