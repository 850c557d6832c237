"""DeBERTa, versions 2 and 3."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate import catalog
from ordinate.checks import need
from ordinate.family import ACTIVATIONS, Family, Heads, Rule, activation_of, linear, need_activation, need_settings
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.feedforward import BENDS, Bend
from ordinate.models.shape import Shape
from ordinate.schemes.deberta import Deberta

MIXER = "softmax:variant.bias=true"
TERMS = {"both": ["p2c", "c2p"], "c2p": ["c2p"], "p2c": ["p2c"]}


class DebertaV2(Family):
    """BERT whose contents meet offsets: one table of them, normed, read by the projections of each layer.

    Version 2 has a convolution after the first layer where `conv_kernel_size` says so; those are refused.

    Source: He et al. 2021, https://arxiv.org/abs/2006.03654; version 3: He et al. 2023,
        https://arxiv.org/abs/2111.09543.
    """

    kind = Encoder
    model_type = "deberta-v2"
    prefix = "deberta."
    # of a head that is tied, and of those that version 3 was trained with
    aside = (
        "position_ids",
        "decoder.weight",
        "decoder.bias",
        *(
            f"{head}.{part}.{kind}"
            for head in ("lm_predictions.lm_head", "mask_predictions")
            for part in ("dense", "LayerNorm", "classifier")
            for kind in ("weight", "bias")
        ),
        "lm_predictions.lm_head.bias",
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-7,
        "type_vocab_size": 0,
        "max_relative_positions": -1,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "architectures": (),
    }

    def architecture(self, shape: Shape) -> str:
        """A model with a masked head, or without one."""
        return "DebertaV2ForMaskedLM" if cast(EncoderShape, shape).top == "masked" else "DebertaV2Model"

    def shape(self, config: Mapping[str, Any]) -> EncoderShape:
        """The sizes in a config.json."""
        width = config["hidden_size"]
        # what a config.json leaves out is off in this family
        off = {"relative_attention": False, "position_biased_input": True, "share_att_key": False}
        need_settings(
            self,
            off | dict(config),
            relative_attention=True,
            position_biased_input=False,
            share_att_key=True,
            conv_kernel_size=0,
            embedding_size=width,
            attention_head_size=width // config["num_attention_heads"],
            legacy=True,
            tie_word_embeddings=True,
        )
        bend = need_activation(config["hidden_act"], ACTIVATIONS)
        need(bend in BENDS, "a masked head bends its numbers without a gate", f"got {bend}", "load another")
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            scheme=self._line(config),
            mixer=MIXER,
            max_length=config["max_position_embeddings"],
            norm="layer",
            epsilon=config["layer_norm_eps"],
            order="post",
            feedforward=bend,
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            embedding_norm=True,
            kinds=config["type_vocab_size"],
            top="masked" if "DebertaV2ForMaskedLM" in config["architectures"] else "none",
            top_bend=cast(Bend, bend),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        scheme = self._scheme(shape)
        need(
            isinstance(shape, EncoderShape) and shape.mixer == MIXER and scheme is not None and scheme.shared,
            f"a deberta-v2 is an encoder with deberta:version.shared=true and {MIXER}",
            f"got {type(shape).__name__}, {shape.scheme}, {shape.mixer}",
            "save it as our own",
        )
        met = cast(Deberta, scheme)
        return {
            "architectures": [self.architecture(shape)],
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.epsilon,
            "hidden_act": activation_of(shape.feedforward),
            "type_vocab_size": cast(EncoderShape, shape).kinds,
            "relative_attention": True,
            "position_biased_input": False,
            "share_att_key": True,
            "max_relative_positions": met.max_distance,
            "position_buckets": met.buckets,
            "pos_att_type": TERMS[met.terms],
            "norm_rel_ebd": "none" if met.norm is None else "layer_norm",
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here, top = "deberta.encoder.layer.{}", "blocks.{}", cast(EncoderShape, shape)
        parts = [f"{there}.attention.self.{part}_proj" for part in ("query", "key", "value")]
        rules = [
            Rule("tokens.weight", ("deberta.embeddings.word_embeddings.weight",)),
            Rule("schemes.0.table", ("deberta.encoder.rel_embeddings.weight",)),
            *linear("embedding_norm", "deberta.embeddings.LayerNorm", bias=True),
            *linear(f"{here}.mixer.project", *parts, kind=Heads, bias=True),
            *linear(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *linear(f"{here}.mixer_norm", f"{there}.attention.output.LayerNorm", bias=True),
            *linear(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *linear(f"{here}.feedforward_norm", f"{there}.output.LayerNorm", bias=True),
        ]
        if cast(Deberta, self._scheme(shape)).norm is not None:
            rules += linear("schemes.0.norm", "deberta.encoder.LayerNorm", bias=True)
        if top.kinds:
            rules.append(Rule("kinds.weight", ("deberta.embeddings.token_type_embeddings.weight",)))
        head = "cls.predictions"
        return rules + (
            [
                *linear("masked.transform", f"{head}.transform.dense", bias=True),
                *linear("masked.norm", f"{head}.transform.LayerNorm", bias=True),
                Rule("masked.bias", (f"{head}.bias",)),
            ]
            if top.top == "masked"
            else []
        )

    def _line(self, config: Mapping[str, Any]) -> str:
        """The scheme, in one line."""
        kinds = config["pos_att_type"]
        kinds = sorted(kinds.lower().split("|") if isinstance(kinds, str) else kinds)
        terms = next((ours for ours, theirs in TERMS.items() if sorted(theirs) == kinds), None)
        need(terms is not None, "pos_att_type names c2p, p2c or both", f"got {kinds}", "load another checkpoint")
        reach, buckets = config["max_relative_positions"], config["position_buckets"]
        reach = config["max_position_embeddings"] if reach < 1 else reach
        need(buckets > 0, "our deberta-v2 has buckets", f"got position_buckets={buckets}", "load another checkpoint")
        said = [f"max_distance={reach}", f"buckets={buckets}", f"terms={terms}", "version.shared=true"]
        if "layer_norm" in config["norm_rel_ebd"].lower():
            said.append(f"version.epsilon={config['layer_norm_eps']}")
        return "deberta:" + ",".join(said)

    def _scheme(self, shape: Shape) -> Deberta | None:
        """The scheme of a shape, if it is this one."""
        name, options = catalog.parse(shape.scheme)
        return Deberta(**catalog.bind(Deberta, options, shape.sizes)) if name == "deberta" else None
