"""ModernBERT."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need, need_known
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.models.text_head import READERS, Pool
from ordinate.pretrained._family import (
    HF_GATES,
    Family,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
    need_usual,
)
from ordinate.pretrained.layer_type_ropes import layer_type_rope, layer_type_ropes_config
from ordinate.pretrained.sliding_windows import FULL, SLIDING, need_layer_types
from ordinate.pretrained.text_heads import encoder_head, head_classes, head_labels, head_settings

# default RoPE theta of each layer type
THETAS = {FULL: 160_000.0, SLIDING: 10_000.0}
BASE = "ModernBertModel"
HEADS = {"ModernBertForMaskedLM": "masked", **head_classes(BASE), BASE: "none"}
POOLS: Mapping[str, Pool] = {"cls": "first", "mean": "mean"}
BIASED, PLAIN = "softmax:variant.bias=true", "softmax"


class Modernbert(Family):
    """ModernBERT: RoPE with a larger theta in global than in sliding-window layers, gated feed-forward, no biases.

    Source: Warner et al. 2024, Smarter, Better, Faster, Longer, https://arxiv.org/abs/2412.13663.
    """

    model_class = Encoder
    model_type = "modernbert"
    base_class = BASE
    prefix = "model."
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_368,
        "hidden_size": 768,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "hidden_activation": "gelu",
        "layer_types": None,
        "rope_parameters": None,
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "decoder_bias": True,
        "tie_word_embeddings": True,
        "classifier_bias": False,
        "classifier_activation": "gelu",
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

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        need_usual(self, config, head_dim=config["hidden_size"] // config["num_attention_heads"])
        count, every = config["num_hidden_layers"], config["global_attn_every_n_layers"]
        default = [SLIDING if layer % every else FULL for layer in range(count)]
        kinds = default if config["layer_types"] is None else config["layer_types"]
        need_layer_types(kinds)
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=count,
            heads=config["num_attention_heads"],
            scheme=",".join(self._rope(config, kind) for kind in kinds),
            mixer=BIASED if config["attention_bias"] else PLAIN,
            # local_attention counts both sides; our window counts one side and the token itself
            sliding_windows=tuple(None if kind == FULL else config["local_attention"] // 2 + 1 for kind in kinds),
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=config["norm_eps"],
            feedforward=activation_kind(config, "hidden_activation", HF_GATES),
            hidden=config["intermediate_size"],
            bias=("norm",) * config["norm_bias"] + ("feedforward",) * config["mlp_bias"],
            embedding_norm=True,
            first_norm=False,
            **self._head(config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        fits = isinstance(shape, EncoderShape) and shape.mixer_spec in (BIASED, PLAIN) and shape.feedforward in GATED
        came = f"got {type(shape).__name__}, {shape.mixer_spec}, {shape.feedforward}"
        wanted = f"a modernbert must be a gated encoder with mixer {BIASED} or {PLAIN}"
        need(fits, wanted, came, "use save_pretrained instead")
        sizes, top = {window for window in shape.layer_windows if window is not None}, cast(EncoderShape, shape)
        ropes = layer_type_ropes_config(self.model_type, shape, shape.width // shape.heads, THETAS)
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            # written as null: otherwise transformers assumes the special tokens of the released models
            **dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")),
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "hidden_activation": activation_name(shape.feedforward, HF_GATES),
            "max_position_embeddings": shape.max_length,
            "norm_eps": shape.norm_eps,
            "norm_bias": "norm" in shape.bias,
            "attention_bias": shape.mixer_spec == BIASED,
            "mlp_bias": "feedforward" in shape.bias,
            "local_attention": 2 * (sizes.pop() - 1) if sizes else self.defaults["local_attention"],
            **ropes,
            **self._head_config(top),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        norms, wide = "norm" in shape.bias, "feedforward" in shape.bias
        rules = [
            TensorRule("tokens.weight", ("model.embeddings.tok_embeddings.weight",)),
            *linear_rules("embedding_norm", "model.embeddings.norm", bias=norms),
            *linear_rules("norm", "model.final_norm", bias=norms),
            *linear_rules(f"{here}.mixer.project", f"{there}.attn.Wqkv", bias=shape.mixer_spec == BIASED),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.Wo", bias=shape.mixer_spec == BIASED),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.mlp_norm", bias=norms),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.Wi", bias=wide),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.Wo", bias=wide),
        ]
        for layer in range(1, shape.layers):
            rules += linear_rules(f"blocks.{layer}.mixer_norm", f"model.layers.{layer}.attn_norm", bias=norms)
        return [*rules, *self._head_rules(cast(EncoderShape, shape))]

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

    def _rope(self, config: Mapping[str, Any], kind: str) -> str:
        """Return the RoPE scheme spec of a layer type."""
        early = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}[kind]
        head_width, theta = config["hidden_size"] // config["num_attention_heads"], config.get(early, THETAS[kind])
        return layer_type_rope(config, kind, head_width, scaled=True, theta=theta)
