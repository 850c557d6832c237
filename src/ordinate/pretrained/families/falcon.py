"""Falcon."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.models.block import NormPosition
from ordinate.models.shape import Shape
from ordinate.pretrained._family import GroupedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters

BIASED, PLAIN = "softmax:variant.bias=true", "softmax"


class Falcon(DecoderLike):
    """Falcon: RoPE, queries that share one or few keys and values, parallel attention and feed-forward, LayerNorm.

    The branches have a norm each in larger models, and follow each other in smaller ones. Some models (falcon-rw)
    have ALiBi in place of RoPE, with slopes and positions rounded to bfloat16, and divided by sqrt(head width) as the
    scores are.

    Source: Almazrouei et al. 2023, The Falcon Series of Open Language Models, https://arxiv.org/abs/2311.16867.
    """

    model_type = "falcon"
    base_class = "FalconModel"
    causal_lm_class = "FalconForCausalLM"
    prefix = "transformer."
    ignored_suffixes = ("rotary_emb.inv_freq",)
    # transformers' eager attention adds the bias of ALiBi twice
    reference_attention = "sdpa"
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 65_024,
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "num_ln_in_parallel_attn": None,
        "layer_norm_epsilon": 1e-5,
        "num_kv_heads": None,
        "alibi": False,
        "new_decoder_architecture": False,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "max_position_embeddings": 2048,
        "rope_parameters": None,
        "ffn_hidden_size": None,
        "activation": "gelu",
        "tie_word_embeddings": True,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read the width from the name that it has in older files."""
        width = config["hidden_size"] if config.get("n_embed") is None else config["n_embed"]
        return {**config, "hidden_size": width}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads, length = config["hidden_size"], config["num_attention_heads"], config["max_position_embeddings"]
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=self._kv_heads(config),
            scheme=alibi_spec(width // heads)
            if config["alibi"]
            else rope_spec(rope_parameters(config), width // heads, length),
            mixer=BIASED if config["bias"] else PLAIN,
            max_length=length,
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            norm_position=self._norm_position(config),
            feedforward=activation_kind(config, "activation"),
            hidden=config["ffn_hidden_size"] or 4 * width,
            bias=("norm", "feedforward") if config["bias"] else ("norm",),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        positions, kv_heads = ("parallel", "shared", "pre"), shape.heads if shape.kv_heads is None else shape.kv_heads
        grouped = kv_heads not in (1, shape.heads)
        need(
            shape.mixer_spec in (BIASED, PLAIN)
            and shape.norm_position in positions
            and not (grouped and shape.norm_position == "pre"),
            f"a falcon requires the mixer {BIASED} or {PLAIN}, and norm_position {', '.join(positions)} (the last "
            "with one key head, or as many as query heads)",
            f"got {shape.mixer_spec}, {shape.norm_position} and {kv_heads} for {shape.heads}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_ln_in_parallel_attn": 2 if shape.norm_position == "parallel" else 1,
            "layer_norm_epsilon": shape.norm_eps,
            "num_kv_heads": kv_heads,
            "new_decoder_architecture": grouped or shape.norm_position == "parallel",
            "multi_query": kv_heads == 1,
            "parallel_attn": shape.norm_position != "pre",
            "bias": shape.mixer_spec == BIASED,
            "max_position_embeddings": shape.max_length,
            **_positions(shape.scheme_spec, shape.bindable_sizes["head_width"]),
            "ffn_hidden_size": shape.hidden_width,
            "activation": activation_name(shape.feedforward),
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here, biased = "transformer.h.{}", "blocks.{}", shape.mixer_spec == BIASED
        first, second = (
            ("ln_attn", "ln_mlp")
            if shape.norm_position == "parallel"
            else (
                "input_layernorm",
                "post_attention_layernorm",
            )
        )
        rules = [
            TensorRule("tokens.weight", ("transformer.word_embeddings.weight",)),
            *linear_rules("norm", "transformer.ln_f", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.{first}", bias=True),
            *linear_rules(
                f"{here}.mixer.project", f"{there}.self_attention.query_key_value", kind=GroupedQKV, bias=biased
            ),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attention.dense", bias=biased),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.dense_h_to_4h", bias=biased),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.dense_4h_to_h", bias=biased),
        ]
        if shape.norm_position != "shared":
            rules += linear_rules(f"{here}.feedforward_norm", f"{there}.{second}", bias=True)
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

    def _kv_heads(self, config: Mapping[str, Any]) -> int:
        """Return the number of key and value heads, which older models do not name."""
        heads = config["num_attention_heads"]
        if config["new_decoder_architecture"]:
            return config["num_kv_heads"] or heads
        return 1 if config["multi_query"] else heads

    def _norm_position(self, config: Mapping[str, Any]) -> NormPosition:
        """Return the position of the norms; raise a ValueError for settings that transformers does not run."""
        newer, parallel, norms = (
            config[name] for name in ("new_decoder_architecture", "parallel_attn", "num_ln_in_parallel_attn")
        )
        separate = norms == 2 or (norms is None and newer)
        must = "num_ln_in_parallel_attn of 2 needs new_decoder_architecture, and that needs parallel_attn"
        came = f"got {norms}, {newer}, {parallel}"
        need(not newer or parallel, must, came, "load another checkpoint")
        need(newer or not (parallel and separate), must, came, "load another checkpoint")
        return "parallel" if parallel and separate else "shared" if parallel else "pre"


def alibi_spec(head_width: int) -> str:
    """Return the scheme spec of a falcon with ALiBi, for heads of so many channels."""
    return f"alibi:bfloat16_factor={head_width**-0.5}"


def _positions(line: str, head_width: int) -> dict[str, Any]:
    """Return the settings that are equivalent to a scheme spec; raise a ValueError if there are none."""
    name, options = catalog.parse(line)
    if name != "alibi":
        return {"rope_parameters": spec_to_rope_parameters(line, head_width)}
    # transformers checks the rotation that it then leaves out
    need(head_width % 2 == 0, "a falcon needs an even head width", f"got {head_width}", "use save_pretrained instead")
    alone = options.keys() == {"bfloat16_factor"}
    need(
        alone and math.isclose(float(options["bfloat16_factor"]), head_width**-0.5, rel_tol=1e-6),
        f"a falcon with heads of {head_width} channels requires a scheme rope, or {alibi_spec(head_width)}",
        f"got {line}",
        "use it, or save_pretrained instead",
    )
    return {"alibi": True}
