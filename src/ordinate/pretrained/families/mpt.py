"""MPT."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.decoder_like import DecoderLike

# options of `AttentionOptions`, by the keys of `attn_config`
OPTIONS = {"softmax_scale": "scale", "clip_qkv": "clip_qkv"}


class Mpt(DecoderLike):
    """MPT: ALiBi, no biases, not even in LayerNorm.

    Other positions, norms of queries and keys, scaled logits and masks of prefixes, which config.json may name, are
    not implemented in transformers, and have no effect here either.

    Source: MosaicML 2023, https://www.databricks.com/blog/mpt-7b.
    """

    model_type = "mpt"
    base_class = "MptModel"
    causal_lm_class = "MptForCausalLM"
    prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        "d_model": 2048,
        "n_heads": 16,
        "n_layers": 24,
        "max_seq_len": 2048,
        "vocab_size": 50_368,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "attn_config": None,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "num_attention_heads": "n_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        # of a table of one distance, transformers takes the same bias for all
        must, length = "max_seq_len of an mpt must be above 1", config["max_seq_len"]
        need(length > 1, must, f"got {length}", "load another checkpoint")
        attention = config["attn_config"] or {}
        # a clip of 0 is none there
        given = {name: attention.get(name) for name in OPTIONS} | {"clip_qkv": attention.get("clip_qkv") or None}
        for name, value in given.items():
            right = value is None or (isinstance(value, int | float) and 0 < value < math.inf)
            need(
                right,
                f"{name} of attn_config must be above zero",
                f"got {shown(value)}",
                "correct it, or leave it out",
            )
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["d_model"],
            layers=config["n_layers"],
            heads=config["n_heads"],
            scheme="alibi",
            mixer=_mixer(given),
            max_length=length,
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            feedforward="gelu",
            # whatever expansion_ratio says, as in transformers
            hidden=4 * config["d_model"],
            bias=(),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        (entry, *more), own = shape.mixer_spec.entries, {option: key for key, option in OPTIONS.items()}
        name, given = catalog.parse(entry)
        options = given.get("variant", {})
        plain = name == "softmax" and not more and given.keys() <= {"variant"} and options.keys() <= own.keys()
        need(
            shape.scheme_spec == "alibi" and plain and set(shape.bias) <= {"head"},
            f"an mpt requires scheme alibi, mixer softmax with {' and '.join(own)} only, and no bias",
            f"got {shape.scheme_spec}, {shape.mixer_spec}, {shape.bias}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "d_model": shape.width,
            "n_layers": shape.layers,
            "n_heads": shape.heads,
            "max_seq_len": shape.max_length,
            "expansion_ratio": 4,
            "layer_norm_epsilon": shape.norm_eps,
            "no_bias": True,
            "attn_config": {"alibi": True} | {own[option]: float(value) for option, value in options.items()},
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.blocks.{}", "blocks.{}"
        rules = [
            TensorRule("tokens.weight", ("transformer.wte.weight",)),
            *linear_rules("norm", "transformer.norm_f", bias=False),
            *linear_rules(f"{here}.mixer_norm", f"{there}.norm_1", bias=False),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.norm_2", bias=False),
            *linear_rules(f"{here}.mixer.project", f"{there}.attn.Wqkv", bias=False),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.out_proj", bias=False),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.ffn.up_proj", bias=False),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.ffn.down_proj", bias=False),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]


def _mixer(given: Mapping[str, Any]) -> str:
    """Return the mixer with the options that are given."""
    options = [f"variant.{option}={given[key]}" for key, option in OPTIONS.items() if given[key] is not None]
    return f"softmax:{','.join(options)}" if options else "softmax"
