"""ALBERT."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import LAYER_PLACEHOLDER, TensorRule
from ordinate.pretrained.narrow_bert_like import NarrowBertLike

SIZES = ("num_hidden_layers", "num_hidden_groups", "inner_group_num")
ABSENT = ("is_decoder", "add_cross_attention")
SENTENCE_ORDER = ("sop_classifier.classifier.weight", "sop_classifier.classifier.bias")


class Albert(NarrowBertLike):
    """ALBERT: BERT with narrower token embeddings, and layers that share parameters, in one group or in several.

    Its head for the order of two sentences is ignored.

    Source: Lan et al. 2020, https://arxiv.org/abs/1909.11942.
    """

    model_type = "albert"
    prefix = "albert."
    masked_lm_class = "AlbertForMaskedLM"
    causal_lm_class = ""
    base_class = "AlbertModel"
    layer = "encoder.albert_layer_groups"
    projections = ("attention.query", "attention.key", "attention.value")
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "mixer.out": "attention.dense",
        "mixer_norm": "attention.LayerNorm",
        "feedforward.widen": "ffn",
        "feedforward.narrow": "ffn_output",
        "feedforward_norm": "full_layer_layer_norm",
    }
    masked_transform = "predictions.dense"
    masked_norm = "predictions.LayerNorm"
    masked_logits = "predictions"
    has_pooler = True
    pooler = "pooler"
    text_classifier = ("", "classifier")
    embedding_map = "encoder.embedding_hidden_mapping_in"
    always_mapped = True
    ignored_suffixes = (*NarrowBertLike.ignored_suffixes, "pooler.weight", "pooler.bias", *SENTENCE_ORDER)
    defaults: ClassVar[Mapping[str, Any]] = {
        **{key: NarrowBertLike.defaults[key] for key in NarrowBertLike.defaults if key not in ABSENT},
        "vocab_size": 30_000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16_384,
        "hidden_act": "gelu_new",
    }

    def positions(self, columns: int, width: int) -> str:
        return f"learned:width={columns}"

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        repeats, groups, inner = (config[name] for name in SIZES)
        must, came = "num_hidden_groups must be at most num_hidden_layers", f"got {groups} and {repeats}"
        need(groups <= repeats, must, came, "load another checkpoint")
        owners = _owners(repeats, groups, inner)
        made = super().shape({**config, "num_hidden_layers": len(owners)})
        return made if len(set(owners)) == len(owners) else replace(made, shared_layers=owners)

    def config(self, shape: Shape) -> dict[str, Any]:
        return super().config(shape) | dict(zip(SIZES, _sizes(shape), strict=True))

    def all_rules(self, shape: Shape) -> list[TensorRule]:
        inner = self.settings.get("inner_group_num") or _sizes(shape)[2]
        own = sorted(set(shape.shared_layers or range(shape.layers)))
        rules = []
        for rule in self.rules(shape):
            if LAYER_PLACEHOLDER not in rule.ours:
                rules.append(rule)
                continue
            for rank, layer in enumerate(own):
                there = f"{rank // inner}.albert_layers.{rank % inner}"
                theirs = tuple(name.replace(LAYER_PLACEHOLDER, there) for name in rule.theirs)
                rules.append(replace(rule, ours=rule.ours.replace(LAYER_PLACEHOLDER, str(layer)), theirs=theirs))
        return rules


def _owners(repeats: int, groups: int, inner: int) -> tuple[int, ...]:
    """Return for each layer the one whose parameters it has, with the rounding of transformers.

    Args:
        repeats: how often a group of layers runs.
        groups: groups with parameters of their own.
        inner: layers of a group.
    """
    ranks = [int(turn / (repeats / groups)) * inner + place for turn in range(repeats) for place in range(inner)]
    return tuple(ranks.index(rank) for rank in ranks)


def _sizes(shape: Shape) -> tuple[int, int, int]:
    """Return the numbers of repeats, of groups and of layers of a group; raise a ValueError if there are none."""
    owners = shape.shared_layers or tuple(range(shape.layers))
    own = len(set(owners))
    for inner in range(1, own + 1):
        sizes = shape.layers // inner, own // inner, inner
        if shape.layers % inner == own % inner == 0 and _owners(*sizes) == owners:
            return sizes
    must = "the layers of an albert are groups of layers, each repeated in turn, as often as the others or once more"
    raise ValueError(f"{must}; got shared_layers={shape.shared_layers}; use save_pretrained instead")
