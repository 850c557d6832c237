"""Base class of the encoders of T5-like models alone."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family, TensorRule, need_settings
from ordinate.pretrained.t5_like import (
    COPIES,
    LENGTH,
    MIXER,
    TABLE,
    T5Like,
    feedforward_kind,
    stack_config,
    stack_rules,
    t5_scheme,
)


class T5EncoderLike(Family):
    """Encoders of T5-like models alone, without a head: of sentence embeddings and of models of images from texts.

    Must: `model_type`, `base_class` and `defaults`.
    May: `table_per_layer`.
    """

    model_class = Encoder
    prefix = ""
    aliases = T5Like.aliases
    usual: ClassVar[Mapping[str, Any]] = {
        **{key: value for key, value in T5Like.defaults.items() if "decoder" not in key},
        "is_decoder": False,
    }
    """Default values that they share."""
    table_per_layer: ClassVar[bool] = False
    """Whether each layer has a table of positions of its own."""

    def architecture(self, shape: Shape) -> str:
        return self.base_class

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        need_settings(self, config, is_decoder=False)
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config["d_model"],
            layers=config["num_layers"],
            heads=config["num_heads"],
            head_width=config["d_kv"],
            scheme=t5_scheme(config, per_layer=self.table_per_layer),
            mixer=MIXER,
            max_length=LENGTH,
            norm_eps=config["layer_norm_epsilon"],
            feedforward=feedforward_kind(config),
            hidden=config["d_ff"],
            bias=(),
            head="none",
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        fits = isinstance(shape, EncoderShape) and shape.head == "none" and shape.mixer_spec == MIXER
        came = f"got {type(shape).__name__}, head={shape.head!r}, {shape.mixer_spec}"
        must = f"a {self.base_class} must be an encoder with head='none' and mixer {MIXER}"
        need(fits, must, came, "use save_pretrained instead")
        return {
            **stack_config(self.model_type, shape, per_layer=self.table_per_layer),
            "num_layers": shape.layers,
        }

    def copies(self, shape: Shape) -> tuple[str, ...]:
        return COPIES[:1]

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        table = TensorRule("tokens.weight", (TABLE,))
        return [table, *stack_rules(shape, "encoder", "", per_layer=self.table_per_layer)]
