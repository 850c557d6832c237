"""ModernBERT as a decoder."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import TextHead
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.modernbert_like import ModernbertLike

# transformers has no model without a padding token; this one is in no text
NO_PADDING = -1


class ModernbertDecoder(ModernbertLike, DecoderLike):
    """Causal ModernBERT: its layers, and its transform of hidden states before the logits.

    Source: Weller et al. 2025, Seq vs Seq: An Open Suite of Paired Encoders and Decoders,
        https://arxiv.org/abs/2507.11412.
    """

    model_type = "modernbert-decoder"
    base_class = "ModernBertDecoderModel"
    causal_lm_class = "ModernBertDecoderForCausalLM"
    # transformers has no other heads for it
    heads = ("classes",)
    text_classifier = "classifier"
    output_head = "decoder"
    defaults: ClassVar[Mapping[str, Any]] = {**ModernbertLike.usual, "pad_token_id": 50_283}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read the window from the name that precedes in transformers."""
        return {**config, "sliding_window": config.get("sliding_window", config["local_attention"] // 2)}

    def window(self, config: Mapping[str, Any]) -> int:
        # that of the encoder on one side, the token itself included
        window = config["sliding_window"]
        must = "sliding_window of a modernbert-decoder, half of local_attention, must be above 1"
        need(window is not None and window > 1, must, f"got {window}", "correct it, or download config.json again")
        return window

    def local_attention(self, window: int) -> int:
        return 2 * window

    def has_bias(self, head: TextHead) -> bool:
        return bool(self.settings["classifier_bias"])

    def projection_rules(self, ours: str, theirs: str, *, bias: bool) -> Sequence[TensorRule]:
        return linear_rules(ours, *(f"{theirs}.{part}_proj" for part in "qkv"), kind=StackedQKV, bias=bias)

    def shape(self, config: Mapping[str, Any]) -> Shape:
        fields = self.layer_fields(config)
        return Shape(
            **fields | {"bias": fields["bias"] + ("head",) * config["decoder_bias"]},
            tie_embeddings=config["tie_word_embeddings"],
            head_transform=True,
            head_activation=cast(Activation, activation_kind(config, "classifier_activation")),
            head_bias=config["classifier_bias"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        must, came = "a modernbert-decoder must be a decoder", f"got {type(shape).__name__}"
        need(not isinstance(shape, EncoderShape), must, came, "use save_pretrained instead")
        return {
            **self.layer_config(shape),
            "eos_token_id": None,
            "decoder_bias": "head" in shape.bias,
            "tie_word_embeddings": shape.tie_embeddings,
            "classifier_activation": activation_name(shape.head_activation),
            "classifier_bias": shape.head_bias,
        }

    def write_config(self, shape: Shape) -> dict[str, Any]:
        config = super().write_config(shape)
        return {**config, "pad_token_id": NO_PADDING if shape.padding is None else shape.padding}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = self.layer_rules(shape)
        if shape.head_transform:
            top = "lm_head" if shape.head == "next_token" else "head"
            rules += linear_rules("head_transform.transform", f"{top}.dense", bias=shape.head_bias)
            rules += linear_rules("head_transform.norm", f"{top}.norm", bias="norm" in shape.bias)
        return [*rules, *self.head_rules(shape)]
