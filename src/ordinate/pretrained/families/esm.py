"""ESM."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.models.text_head import CLASSIFIERS
from ordinate.pretrained._family import TensorRule, linear_rules, need_usual
from ordinate.pretrained.roberta_like import RobertaLike
from ordinate.schemes.rope import Rope
from ordinate.schemes.spectra._spectrum import Spectrum
from ordinate.schemes.spectra.rounded import TYPES, Rounded

ROTARY, ABSOLUTE = "rotary", "absolute"
RATES = "rotary_embeddings.inv_freq"
ABSENT = ("hidden_act", "type_vocab_size")
# the padding token of the released models
PADDING = 1


class Esm(RobertaLike):
    """ESM-2 and ESM-1b, models of proteins: pre-norm, RoPE or learned positions, and token dropout.

    The published ESM-2 models were trained in float16, with rates of RoPE rounded to that type: their checkpoints
    have them, by which they are recognised.

    Source: Lin et al. 2023, https://doi.org/10.1126/science.ade2574; Rives et al. 2021,
        https://doi.org/10.1073/pnas.2016239118.
    """

    model_type = "esm"
    prefix = "esm."
    masked_lm_class = "EsmForMaskedLM"
    causal_lm_class = ""
    base_class = "EsmModel"
    text_heads = CLASSIFIERS
    norm_position = "pre"
    final_norm = "encoder.emb_layer_norm_after"
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        **RobertaLike.parts,
        "mixer_norm": "attention.LayerNorm",
        "feedforward_norm": "LayerNorm",
    }
    # rates, see `refined`, and a head for contacts, which reads attention weights
    ignored_suffixes = (
        *RobertaLike.ignored_suffixes,
        RATES,
        "contact_head.regression.weight",
        "contact_head.regression.bias",
    )
    null_is_false = frozenset(
        {"emb_layer_norm_before", "token_dropout", "is_decoder", "add_cross_attention", "is_folding_model"}
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        **{key: RobertaLike.defaults[key] for key in RobertaLike.defaults if key not in ABSENT},
        "vocab_size": None,
        "mask_token_id": None,
        "pad_token_id": None,
        "max_position_embeddings": 1026,
        "rope_theta": 10_000.0,
        "position_embedding_type": ABSOLUTE,
        "emb_layer_norm_before": None,
        "token_dropout": False,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        # the activation is not an option
        return {**super().complete_config(config, names), "hidden_act": "gelu"}

    def padding(self, config: Mapping[str, Any]) -> int | None:
        return super().padding(config) if config["position_embedding_type"] == ABSOLUTE else None

    def embeddings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        came = f"got {config['vocab_size']}"
        need(config["vocab_size"] is not None, "vocab_size must be given", came, "set it in config.json")
        kind, drops, mask = (config[key] for key in ("position_embedding_type", "token_dropout", "mask_token_id"))
        need(
            mask is not None or not drops,
            "token_dropout needs a mask_token_id",
            "got null",
            "set it in config.json, or load another checkpoint",
        )
        if kind == ROTARY:
            need_usual(self, config, head_dim=config["hidden_size"] // config["num_attention_heads"])
        schemes = {ABSOLUTE: "learned", ROTARY: f"rope:theta={config['rope_theta']}"}
        return {
            # another type adds no positions, as in transformers
            "scheme": schemes.get(kind, "none"),
            "embedding_norm": bool(config["emb_layer_norm_before"]),
            "mask_token": mask if drops else None,
        }

    def refined(self, shape: Shape, tensors: Mapping[str, Tensor]) -> Shape:
        rope, names = _rope(shape), sorted(name for name in tensors if name.endswith(RATES))
        if rope is None or not names:
            return shape
        # of several, which older versions store, transformers takes the first
        stored = tensors[names[0]].double()
        exact = torch.tensor(Spectrum().rates(rope.head_width, rope.theta), dtype=torch.float64)
        if stored.shape == exact.shape and ((stored / exact - 1).abs() < 1e-5).all():
            return shape
        found = [name for name, kind in TYPES.items() if stored.equal(exact.float().to(kind).double())]
        must = f"{names[0]} of an {self.model_type} must have the rates that rope_theta gives, or these in 16 bits"
        need(bool(found), must, "got others", "load another checkpoint")
        return replace(shape, scheme=f"rope:theta={rope.theta},spectrum=rounded,spectrum.dtype={found[0]}")

    def computed(self, shape: Shape) -> Mapping[str, Tensor]:
        rope = _rope(shape)
        if rope is None:
            return {}
        rates = torch.tensor(rope.spectrum.rates(rope.head_width, rope.theta))
        there = f"{self.prefix}{self.layer}.{{}}.attention.self.{RATES}"
        return {there.format(layer): rates.clone() for layer in range(shape.layers)}

    def embeddings_config(self, shape: EncoderShape) -> dict[str, Any]:
        rope = _rope(shape)
        learned = shape.scheme_spec == "learned"
        fits = learned or shape.scheme_spec == "none" or rope is not None
        must = f"an {self.model_type} must have scheme learned, none or rope on whole heads"
        need(fits, must, f"got {shape.scheme_spec}", "use save_pretrained instead")
        came, usual = f"got head_width={shape.head_width}", shape.head_width in (None, shape.width // shape.heads)
        must = f"the heads of an {self.model_type} together are as wide as the model"
        need(usual, must, came, "use save_pretrained instead")
        padding = {} if learned else {"pad_token_id": min(PADDING, shape.vocabulary - 1)}
        return {
            **(super().embeddings_config(shape) if learned else padding),
            "position_embedding_type": ABSOLUTE if learned else "none" if rope is None else ROTARY,
            **({} if rope is None else {"rope_theta": rope.theta}),
            "emb_layer_norm_before": shape.embedding_norm,
            "token_dropout": shape.mask_token is not None,
            "mask_token_id": shape.mask_token,
        }

    def config(self, shape: Shape) -> dict[str, Any]:
        activation, must = shape.feedforward, f"an {self.model_type} has the activation gelu"
        need(activation == "gelu", must, f"got feedforward={activation!r}", "use save_pretrained instead")
        return {name: value for name, value in super().config(shape).items() if name != "hidden_act"}

    def masked_logit_rules(self, shape: EncoderShape) -> Sequence[TensorRule]:
        own = [] if shape.tie_embeddings else [TensorRule("masked.decoder.weight", ("lm_head.decoder.weight",))]
        return [*own, TensorRule("masked.bias", ("lm_head.bias",))]

    def embedding_rules(self, table: str, shape: EncoderShape) -> list[TensorRule]:
        learned = shape.scheme_spec == "learned"
        return [
            TensorRule("tokens.weight", (f"{table}.word_embeddings.weight",)),
            *(self.position_rules(f"{table}.position_embeddings.weight", shape.padding) if learned else ()),
            *(linear_rules("embedding_norm", f"{table}.layer_norm", bias=True) if shape.embedding_norm else ()),
        ]


def _rope(shape: Shape) -> Rope | None:
    """Return the RoPE of a shape, if its scheme is one on whole heads with exact or rounded rates."""
    name, options = catalog.parse(shape.scheme_spec.entries[0]) if len(shape.scheme_spec.entries) == 1 else ("", {})
    if name != "rope":
        return None
    rope = Rope(**catalog.bind(Rope, options, shape.bindable_sizes))
    usual = rope.layout == "half" and rope.rotary_dim == rope.head_width
    return rope if usual and type(rope.spectrum) in (Spectrum, Rounded) else None
