"""DeBERTa, versions 2 and 3."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import CLASSIFIERS
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import Family, StackedQKV, TensorRule, linear_rules, need_settings, need_usual
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.deberta_positions import mixer_line, position_settings, read_positions, scheme_line
from ordinate.pretrained.text_heads import (
    encoder_head,
    head_classes,
    head_labels,
    head_settings,
    masked_logit_rules,
)

BASE = "DebertaV2Model"
HEADS = {"DebertaV2ForMaskedLM": "masked", **head_classes(BASE), BASE: "none"}


class DebertaV2(Family):
    """DeBERTa-v2 and v3: disentangled attention over content and relative position, with one relative-position table
    shared by all layers and projected by each layer's query and key projections, or by projections of its own.

    The largest models of version 2 have a convolution beside the first layer.

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
        # of absolute positions that are not added, and of relative ones that are not used
        "embeddings.position_embeddings.weight",
        "encoder.LayerNorm.weight",
        "encoder.LayerNorm.bias",
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
        "embedding_size": None,
        "conv_kernel_size": 0,
        "conv_groups": 1,
        "conv_act": "tanh",
        "legacy": True,
        "tie_word_embeddings": True,
        "pooler_hidden_act": "gelu",
        "architectures": (),
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head by the class that config.json names, or by the tensors if it names none."""
        own = "cls.predictions.bias" if config["legacy"] else "lm_predictions.lm_head.bias"
        return {**config, "head": encoder_head(config, HEADS, own in names)}

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        table = ("encoder.rel_embeddings.weight",) if self.settings["relative_attention"] else ()
        return (*self.ignored_suffixes, *table)

    def architecture(self, shape: Shape) -> str:
        named = {head: name for name, head in HEADS.items()}
        return named.get(shape.head, self.base_class)

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        width, head, narrow = config["hidden_size"], config["head"], config["embedding_size"]
        need_settings(self, config, attention_head_size=width // config["num_attention_heads"])
        activation = activation_kind(config, "hidden_act")
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme=scheme_line(config),
            mixer=mixer_line(config),
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=config["layer_norm_eps"],
            norm_position="post",
            feedforward=activation,
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            embedding_norm=True,
            token_types=config["type_vocab_size"],
            embedding_width=None if narrow == width else narrow,
            **self._convolution(config),
            head=head,
            # the later head has no decoder of its own
            tie_embeddings=head != "masked" or not config["legacy"] or config["tie_word_embeddings"],
            head_activation=cast(Activation, activation),
            pool_activation=self._pool_activation(config) if head == "classes" else "tanh",
            labels=head_labels(head, config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        must, came = "a deberta-v2 must be an encoder", f"got {type(shape).__name__}"
        need(isinstance(shape, EncoderShape), must, came, "use save_pretrained instead")
        top = cast(EncoderShape, shape)
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "embedding_size": top.table_width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "hidden_act": activation_name(shape.feedforward),
            "type_vocab_size": top.token_types,
            "conv_kernel_size": top.convolution,
            "conv_groups": top.convolution_groups,
            "conv_act": activation_name(top.convolution_activation),
            "tie_word_embeddings": top.tie_embeddings,
            **position_settings(shape),
            **self._classifier_config(top),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, top = "deberta.encoder.layer.{}", "blocks.{}", cast(EncoderShape, shape)
        parts = [f"{there}.attention.self.{part}_proj" for part in ("query", "key", "value")]
        rules = [
            TensorRule("tokens.weight", ("deberta.embeddings.word_embeddings.weight",)),
            *linear_rules("embedding_norm", "deberta.embeddings.LayerNorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.attention.output.LayerNorm", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.output.LayerNorm", bias=True),
        ]
        if top.token_types:
            rules.append(TensorRule("kinds.weight", ("deberta.embeddings.token_type_embeddings.weight",)))
        if top.table_width != top.width:
            rules += linear_rules("widen_embeddings", "deberta.embeddings.embed_proj", bias=False)
        if top.convolution:
            rules += linear_rules("blocks.0.convolution.conv", "deberta.encoder.conv.conv", bias=True)
            rules += linear_rules("blocks.0.convolution_norm", "deberta.encoder.conv.LayerNorm", bias=True)
        return [*rules, *self._position_rules(shape), *self._head_rules(top)]

    def _position_rules(self, shape: Shape) -> list[TensorRule]:
        """Return the tensor mappings of the positions."""
        found, rules = read_positions(shape), list[TensorRule]()
        if found.learned:
            table = "deberta.embeddings.position_embeddings.weight"
            rules.append(TensorRule(f"{found.learned_name}.table", (table,)))
        if found.relative is None:
            return rules
        rules.append(TensorRule(f"{found.relative_name}.table", ("deberta.encoder.rel_embeddings.weight",)))
        if found.relative.norm is not None:
            rules += linear_rules(f"{found.relative_name}.norm", "deberta.encoder.LayerNorm", bias=True)
        for part in found.projections:
            there = f"deberta.encoder.layer.{{}}.attention.self.pos_{part}_proj"
            rules += linear_rules(f"blocks.{{}}.mixer.position_{part}", there, bias=True)
        return rules

    def _head_rules(self, top: EncoderShape) -> list[TensorRule]:
        """Return the tensor mappings of a head."""
        rules = list[TensorRule]()
        if top.head == "masked":
            legacy, early, later = self.settings.get("legacy", True), "cls.predictions", "lm_predictions.lm_head"
            transform = f"{early}.transform" if legacy else later
            rules += linear_rules("masked.transform", f"{transform}.dense", bias=True)
            rules += linear_rules("masked.norm", f"{transform}.LayerNorm", bias=True)
            rules += masked_logit_rules(top, f"{early if legacy else later}.bias", f"{early}.decoder")
        if top.head == "classes":
            rules += linear_rules("pooler", "pooler.dense", bias=True)
        if top.head == "spans":
            rules += linear_rules("classes", "qa_outputs", bias=True)
        return rules + (linear_rules("classes", "classifier", bias=True) if top.head in CLASSIFIERS else [])

    def _convolution(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a shape that describe the convolution; of none, other keys have no effect."""
        if config["conv_kernel_size"] < 1:
            return {}
        must, came = "conv_kernel_size must be odd", f"got {config['conv_kernel_size']}"
        need(config["conv_kernel_size"] % 2 == 1, must, came, "load another checkpoint")
        return {
            "convolution": config["conv_kernel_size"],
            "convolution_groups": config["conv_groups"],
            "convolution_activation": activation_kind(config, "conv_act"),
        }

    def _pool_activation(self, config: Mapping[str, Any]) -> Activation:
        need_usual(self, config, pooler_hidden_size=config["hidden_size"])
        return cast(Activation, activation_kind(config, "pooler_hidden_act"))

    def _classifier_config(self, shape: EncoderShape) -> dict[str, Any]:
        """Return the config.json keys of a classifier."""
        act = activation_name(shape.pool_activation)
        return head_settings(shape) | ({"pooler_hidden_act": act} if shape.head == "classes" else {})
