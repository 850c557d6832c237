"""ModernBERT."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need, need_known
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import READERS, Pool
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.modernbert_like import ModernbertLike
from ordinate.pretrained.text_heads import encoder_head, head_classes, head_labels, head_settings

BASE = "ModernBertModel"
HEADS = {"ModernBertForMaskedLM": "masked", **head_classes(BASE), BASE: "none"}
POOLS: Mapping[str, Pool] = {"cls": "first", "mean": "mean"}


class Modernbert(ModernbertLike):
    """ModernBERT: RoPE with a larger theta in global than in sliding-window layers, gated feed-forward, no biases.

    Source: Warner et al. 2024, Smarter, Better, Faster, Longer, https://arxiv.org/abs/2412.13663.
    """

    model_class = Encoder
    model_type = "modernbert"
    base_class = BASE
    defaults: ClassVar[Mapping[str, Any]] = {
        **ModernbertLike.usual,
        "classifier_pooling": "cls",
        "architectures": (),
    }

    def architecture(self, shape: Shape) -> str:
        return {head: name for name, head in HEADS.items()}.get(shape.head, BASE)

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head, and read the window from the name that precedes in transformers, of one side."""
        # classifiers have the transform too
        masked = "decoder.bias" in names or ("head.dense.weight" in names and "classifier.weight" not in names)
        full = {**config, "head": encoder_head(config, HEADS, masked)}
        if "sliding_window" not in config:
            return full
        half, must = config["sliding_window"], "sliding_window of a modernbert must be a whole number"
        need(half is not None, must, "got null", "leave it out, or give the reach on one side")
        return {**full, "local_attention": 2 * half}

    def window(self, config: Mapping[str, Any]) -> int:
        # local_attention counts both sides; our window counts one side and the token itself
        return config["local_attention"] // 2 + 1

    def local_attention(self, window: int) -> int:
        return 2 * (window - 1)

    def projection_rules(self, ours: str, theirs: str, *, bias: bool) -> Sequence[TensorRule]:
        return linear_rules(ours, f"{theirs}.Wqkv", bias=bias)

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        return EncoderShape(**self.layer_fields(config), **self._head(config))

    def config(self, shape: Shape) -> dict[str, Any]:
        must, came = "a modernbert must be an encoder", f"got {type(shape).__name__}"
        need(isinstance(shape, EncoderShape), must, came, "use save_pretrained instead")
        return {
            "architectures": [self.architecture(shape)],
            # written as null: otherwise transformers assumes the special tokens of the released models
            **dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")),
            **self.layer_config(shape),
            **self._head_config(cast(EncoderShape, shape)),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return [*self.layer_rules(shape), *self._head_rules(cast(EncoderShape, shape))]

    def _head(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a shape that describe its head."""
        head = config["head"]
        if head == "none":
            return {"head": head}
        if head == "classes":
            need_known("classifier_pooling", config["classifier_pooling"], POOLS)
        return {
            "head": head,
            "head_activation": activation_kind(config, "classifier_activation"),
            "head_bias": config["classifier_bias"],
            "head_transform": head in READERS,
            "pool": POOLS[config["classifier_pooling"]] if head == "classes" else "first",
            "labels": head_labels(head, config),
            **self._logits(config),
        }

    def _logits(self, config: Mapping[str, Any]) -> dict[str, bool]:
        """Return the fields of a shape that describe the logits of masked tokens."""
        if config["head"] != "masked":
            return {}
        return {"logit_bias": config["decoder_bias"], "tie_embeddings": config["tie_word_embeddings"]}

    def _head_config(self, shape: EncoderShape) -> dict[str, Any]:
        """Return the config.json keys of a head."""
        pools = {ours: theirs for theirs, ours in POOLS.items()}
        need_known("pool of a modernbert", shape.pool, pools)
        if shape.head not in ("masked", *READERS):
            return {}
        return {
            "classifier_activation": activation_name(shape.head_activation),
            "classifier_bias": shape.head_bias,
            "decoder_bias": shape.logit_bias,
            "tie_word_embeddings": shape.tie_embeddings,
            "classifier_pooling": pools[shape.pool],
            **head_settings(shape),
        }

    def _head_rules(self, shape: EncoderShape) -> list[TensorRule]:
        """Return the tensor mappings of a head."""
        ours = {"masked": "masked", **dict.fromkeys(READERS, "head_transform")}.get(shape.head)
        if ours is None:
            return []
        rules = [
            *linear_rules(f"{ours}.transform", "head.dense", bias=shape.head_bias),
            *linear_rules(f"{ours}.norm", "head.norm", bias="norm" in shape.bias),
        ]
        if shape.head != "masked":
            return [*rules, *linear_rules("classes", "classifier", bias=True)]
        weight = [] if shape.tie_embeddings else [TensorRule("masked.decoder.weight", ("decoder.weight",))]
        return [*rules, *weight, *([TensorRule("masked.bias", ("decoder.bias",))] if shape.logit_bias else [])]
