"""EuroBERT."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need, need_known
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.models.text_head import CLASSIFIERS, Pool
from ordinate.pretrained._family import Family, StackedPair, StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_GATES, activation_kind, activation_name
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters
from ordinate.pretrained.text_heads import encoder_head, head_classes, head_labels, head_settings

BASE = "EuroBertModel"
HEADS = {"EuroBertForMaskedLM": "masked", **head_classes(BASE, CLASSIFIERS), BASE: "none"}
POOLS: Mapping[str, Pool] = {"bos": "first", "mean": "mean", "late": "late"}
BIASED, PLAIN = "softmax:variant.bias=true", "softmax"
HEAD = "lm_head"


class Eurobert(Family):
    """EuroBERT: the layers of Llama as an encoder, whose logits of masked tokens are those of hidden states.

    Source: Boizard et al. 2025, https://arxiv.org/abs/2503.05500.
    """

    model_class = Encoder
    model_type = "eurobert"
    base_class = BASE
    prefix = "model."
    ignored_suffixes = ("rotary_emb.inv_freq",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 128_256,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": None,
        "head_dim": None,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_parameters": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "classifier_pooling": "late",
        "architectures": (),
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head; one that is tied to the token table shows by its bias only, if at all."""
        masked = any(name.startswith(f"{HEAD}.") for name in names)
        return {**config, "head": encoder_head(config, HEADS, masked)}

    def architecture(self, shape: Shape) -> str:
        return {head: name for name, head in HEADS.items()}.get(shape.head, BASE)

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        width, heads, head = config["hidden_size"], config["num_attention_heads"], config["head"]
        came = f"got {width} and {heads}"
        need(width % heads == 0, "num_attention_heads must divide hidden_size", came, "load another checkpoint")
        head_width = config["head_dim"] or width // heads
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"],
            head_width=head_width,
            scheme=rope_spec(rope_parameters(config), head_width, config["max_position_embeddings"]),
            mixer=BIASED if config["attention_bias"] else PLAIN,
            max_length=config["max_position_embeddings"],
            norm_eps=config["rms_norm_eps"],
            feedforward=activation_kind(config, "hidden_act", HF_GATES),
            hidden=config["intermediate_size"],
            bias=("feedforward",) * config["mlp_bias"],
            head=head,
            labels=head_labels(head, config),
            **self._head(config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        fits = isinstance(shape, EncoderShape) and shape.mixer_spec in (BIASED, PLAIN) and shape.feedforward in GATED
        came = f"got {type(shape).__name__}, {shape.mixer_spec}, {shape.feedforward}"
        wanted = f"a eurobert must be a gated encoder with mixer {BIASED} or {PLAIN}"
        need(fits, wanted, came, "use save_pretrained instead")
        top, head_width = cast(EncoderShape, shape), shape.bindable_sizes["head_width"]
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            # written as null: otherwise transformers assumes the special tokens of the released models
            **dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos")),
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": head_width,
            "intermediate_size": shape.hidden_width,
            "hidden_act": activation_name(shape.feedforward, HF_GATES),
            "max_position_embeddings": shape.max_length,
            "rms_norm_eps": shape.norm_eps,
            "rope_parameters": spec_to_rope_parameters(str(shape.scheme_spec), head_width),
            "attention_bias": shape.mixer_spec == BIASED,
            "mlp_bias": "feedforward" in shape.bias,
            "tie_word_embeddings": top.head == "masked" and top.tie_embeddings,
            "classifier_pooling": next(name for name, pool in POOLS.items() if pool == top.pool),
            **head_settings(shape),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        attends, wide = shape.mixer_spec == BIASED, "feedforward" in shape.bias
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        gates = [f"{there}.mlp.{part}_proj" for part in ("gate", "up")]
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            TensorRule("norm.weight", ("model.norm.weight",)),
            TensorRule(f"{here}.mixer_norm.weight", (f"{there}.input_layernorm.weight",)),
            TensorRule(f"{here}.feedforward_norm.weight", (f"{there}.post_attention_layernorm.weight",)),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=attends),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=attends),
            *linear_rules(f"{here}.feedforward.widen", *gates, kind=StackedPair, bias=wide),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=wide),
        ]
        return [*rules, *self._head_rules(cast(EncoderShape, shape))]

    def _head(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a shape that describe its head."""
        if config["head"] == "masked":
            tied = config["tie_word_embeddings"]
            return {"masked_transform": False, "logit_bias": config["mlp_bias"], "tie_embeddings": tied}
        if config["head"] != "classes":
            return {}
        need_known("classifier_pooling", config["classifier_pooling"], POOLS)
        return {"pool": POOLS[config["classifier_pooling"]], "pool_activation": "gelu"}

    def _head_rules(self, shape: EncoderShape) -> list[TensorRule]:
        """Return the tensor mappings of a head."""
        if shape.head == "masked":
            own = [] if shape.tie_embeddings else [TensorRule("masked.decoder.weight", (f"{HEAD}.weight",))]
            return [*own, *([TensorRule("masked.bias", (f"{HEAD}.bias",))] if shape.logit_bias else [])]
        pooler = linear_rules("pooler", "dense", bias=True) if shape.head == "classes" else []
        return [*pooler, *(linear_rules("classes", "classifier", bias=True) if shape.head in CLASSIFIERS else [])]
