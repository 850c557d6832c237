"""DeBERTa, versions 2 and 3."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.models.activation import Activation
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import CLASSIFIERS
from ordinate.pretrained._family import (
    Family,
    StackedQKV,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
    need_settings,
    need_usual,
)
from ordinate.pretrained.text_heads import encoder_head, head_classes, head_labels, head_settings
from ordinate.schemes.deberta import Deberta

MIXER = "softmax:variant.bias=true"
BASE = "DebertaV2Model"
HEADS = {"DebertaV2ForMaskedLM": "masked", **head_classes(BASE), BASE: "none"}
TERMS = {"both": ["p2c", "c2p"], "c2p": ["c2p"], "p2c": ["p2c"]}


class DebertaV2(Family):
    """DeBERTa-v2 and v3: disentangled attention over content and relative position, with one relative-position table
    shared by all layers and projected by each layer's query and key projections.

    Checkpoints with a convolution after the first layer (`conv_kernel_size`) are refused.

    Source: He et al. 2021, https://arxiv.org/abs/2006.03654; version 3: He et al. 2023,
        https://arxiv.org/abs/2111.09543.
    """

    model_class = Encoder
    model_type = "deberta-v2"
    base_class = BASE
    prefix = "deberta."
    # the pre-training heads of version 3
    ignored_suffixes = (
        "position_ids",
        *(
            f"{head}.{part}.{kind}"
            for head in ("lm_predictions.lm_head", "mask_predictions")
            for part in ("dense", "LayerNorm", "classifier")
            for kind in ("weight", "bias")
        ),
        "lm_predictions.lm_head.bias",
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 128_100,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "max_position_embeddings": 512,
        "relative_attention": False,
        "position_biased_input": True,
        "share_att_key": False,
        "pos_att_type": None,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-7,
        "type_vocab_size": 0,
        "max_relative_positions": -1,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "pooler_hidden_act": "gelu",
        "architectures": (),
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head by the class that config.json names, or by the tensors if it names none."""
        return {**config, "head": encoder_head(config, HEADS, "cls.predictions.bias" in names)}

    def architecture(self, shape: Shape) -> str:
        named = {head: name for name, head in HEADS.items()}
        return named.get(shape.head, self.base_class)

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        width = config["hidden_size"]
        need_settings(
            self,
            config,
            relative_attention=True,
            position_biased_input=False,
            share_att_key=True,
            conv_kernel_size=0,
            embedding_size=width,
            attention_head_size=width // config["num_attention_heads"],
            legacy=True,
            tie_word_embeddings=True,
            is_decoder=False,
        )
        activation = activation_kind(config, "hidden_act")
        head = config["head"]
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme=self._line(config),
            mixer=MIXER,
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="post",
            feedforward=activation,
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            embedding_norm=True,
            token_types=config["type_vocab_size"],
            head=head,
            head_activation=cast(Activation, activation),
            pool_activation=self._pool_activation(config) if head == "classes" else "tanh",
            labels=head_labels(head, config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        scheme = self._scheme(shape)
        need(
            isinstance(shape, EncoderShape) and shape.mixer_spec == MIXER and scheme is not None and scheme.shared,
            f"a deberta-v2 must be an encoder with scheme deberta:version.shared=true and mixer {MIXER}",
            f"got {type(shape).__name__}, {shape.scheme_spec}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        deberta = cast(Deberta, scheme)
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "hidden_act": activation_name(shape.feedforward),
            "type_vocab_size": cast(EncoderShape, shape).token_types,
            "relative_attention": True,
            "position_biased_input": False,
            "share_att_key": True,
            "max_relative_positions": deberta.max_distance,
            "position_buckets": deberta.buckets,
            "pos_att_type": TERMS[deberta.terms],
            "norm_rel_ebd": "none" if deberta.norm is None else "layer_norm",
            **self._classifier_config(cast(EncoderShape, shape)),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, top = "deberta.encoder.layer.{}", "blocks.{}", cast(EncoderShape, shape)
        parts = [f"{there}.attention.self.{part}_proj" for part in ("query", "key", "value")]
        rules = [
            TensorRule("tokens.weight", ("deberta.embeddings.word_embeddings.weight",)),
            TensorRule("schemes.0.table", ("deberta.encoder.rel_embeddings.weight",)),
            *linear_rules("embedding_norm", "deberta.embeddings.LayerNorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.attention.output.LayerNorm", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.output.LayerNorm", bias=True),
        ]
        if cast(Deberta, self._scheme(shape)).norm is not None:
            rules += linear_rules("schemes.0.norm", "deberta.encoder.LayerNorm", bias=True)
        if top.token_types:
            rules.append(TensorRule("kinds.weight", ("deberta.embeddings.token_type_embeddings.weight",)))
        if top.head == "masked":
            head = "cls.predictions"
            rules += linear_rules("masked.transform", f"{head}.transform.dense", bias=True)
            rules += linear_rules("masked.norm", f"{head}.transform.LayerNorm", bias=True)
            rules.append(TensorRule("masked.bias", (f"{head}.bias",)))
        if top.head == "classes":
            rules += linear_rules("pooler", "pooler.dense", bias=True)
        if top.head == "spans":
            rules += linear_rules("classes", "qa_outputs", bias=True)
        return rules + (linear_rules("classes", "classifier", bias=True) if top.head in CLASSIFIERS else [])

    def _pool_activation(self, config: Mapping[str, Any]) -> Activation:
        need_usual(self, config, pooler_hidden_size=config["hidden_size"])
        return cast(Activation, activation_kind(config, "pooler_hidden_act"))

    def _classifier_config(self, shape: EncoderShape) -> dict[str, Any]:
        """Return the config.json keys of a classifier."""
        act = activation_name(shape.pool_activation)
        return head_settings(shape) | ({"pooler_hidden_act": act} if shape.head == "classes" else {})

    def _line(self, config: Mapping[str, Any]) -> str:
        """Return the scheme spec of a config.json."""
        given = config["pos_att_type"] or ()
        kinds = sorted(kind.strip() for kind in given.lower().split("|")) if isinstance(given, str) else sorted(given)
        terms = next((ours for ours, theirs in TERMS.items() if sorted(theirs) == kinds), None)
        need(terms is not None, "pos_att_type must be c2p, p2c or both", f"got {kinds}", "load another checkpoint")
        reach, buckets = config["max_relative_positions"], config["position_buckets"]
        reach = config["max_position_embeddings"] if reach < 1 else reach
        need(buckets > 0, "position_buckets must be above 0", f"got {buckets}", "load another checkpoint")
        options = [f"max_distance={reach}", f"buckets={buckets}", f"terms={terms}", "version.shared=true"]
        if "layer_norm" in config["norm_rel_ebd"].lower():
            options.append(f"version.norm_eps={config['layer_norm_eps']}")
        return "deberta:" + ",".join(options)

    def _scheme(self, shape: Shape) -> Deberta | None:
        """Return the scheme of a shape if it is a `Deberta`, else None."""
        name, options = catalog.parse(shape.scheme_spec)
        return Deberta(**catalog.bind(Deberta, options, shape.bindable_sizes)) if name == "deberta" else None
