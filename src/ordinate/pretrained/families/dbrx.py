"""DBRX."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight, linear_rules, need_settings
from ordinate.pretrained.activation_names import HF_GATES, activation_kind, activation_name
from ordinate.pretrained.config_types import check_types
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters

ATTENTION: Mapping[str, Any] = {"clip_qkv": None, "kv_n_heads": 1}
"""Default values of `attn_config`."""
EXPERTS: Mapping[str, Any] = {
    "ffn_act_fn": None,
    "ffn_hidden_size": 3584,
    "moe_num_experts": 4,
    "moe_top_k": 1,
    "moe_normalize_expert_weights": 1.0,
}
"""Default values of `ffn_config`."""
# the epsilon of its norms, which config.json does not have
EPS = 1e-5


class StackedExperts(TensorRule):
    """The matrices of all experts below each other in the checkpoint: gates, and values in another tensor."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.cat([rows.unflatten(0, (-1, shape.hidden_width)) for rows in tensors], 1)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [part.flatten(0, 1) for part in tensor.split(shape.hidden_width, 1)]


class TransposedExperts(TensorRule):
    """The second matrices of all experts, transposed and below each other in the checkpoint."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0].unflatten(0, (-1, shape.hidden_width)).mT

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor.mT.flatten(0, 1)]


class Dbrx(DecoderLike):
    """DBRX: a mixture of experts in every layer, LayerNorm without biases, clipped queries, keys and values.

    Source: Mosaic Research 2024, Introducing DBRX,
        https://www.databricks.com/blog/introducing-dbrx-new-state-art-open-llm.
    """

    model_type = "dbrx"
    base_class = "DbrxModel"
    causal_lm_class = "DbrxForCausalLM"
    # transformers has no other
    heads = ()
    prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        "d_model": 2048,
        "n_heads": 16,
        "n_layers": 24,
        "max_seq_len": 2048,
        "vocab_size": 32_000,
        "attn_config": None,
        "ffn_config": None,
        "rope_parameters": None,
        "tie_word_embeddings": False,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "num_attention_heads": "n_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "max_position_embeddings": "max_seq_len",
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Complete the two dictionaries; say that one setting has no effect, as in transformers."""
        made = {**config, "max_position_embeddings": config["max_seq_len"]}
        for key, usual in (("attn_config", ATTENTION), ("ffn_config", EXPERTS)):
            own = dict(config[key] or {})
            check_types(own, usual)
            made[key] = {**usual, **own}
        told, theta = made["attn_config"].get("rope_theta"), rope_parameters(made)["rope_theta"]
        if told not in (None, theta):
            self.warning = (
                f"rope_theta of attn_config ({shown(told)}) has no effect, as in transformers, where theta "
            )
            self.warning += f"is {theta}; give rope_theta beside attn_config"
        return made

    def shape(self, config: Mapping[str, Any]) -> Shape:
        # transformers does not run others
        need_settings(self, config, tie_word_embeddings=False)
        width, heads, length = config["d_model"], config["n_heads"], config["max_seq_len"]
        attention, inner = config["attn_config"], config["ffn_config"]
        clip = attention["clip_qkv"]
        must = "clip_qkv of attn_config must be a number above zero"
        need(clip is not None and clip > 0, must, f"got {shown(clip)}", "load another checkpoint")
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["n_layers"],
            heads=heads,
            kv_heads=attention["kv_n_heads"],
            scheme=rope_spec(rope_parameters(config), width // heads, length),
            mixer=f"softmax:variant.clip_qkv={float(clip)}",
            max_length=length,
            norm="layer",
            norm_eps=EPS,
            feedforward=activation_kind({"ffn_act_fn": _activation(inner)}, "ffn_act_fn", HF_GATES),
            hidden=inner["ffn_hidden_size"],
            experts=_experts(inner),
            bias=(),
            tie_embeddings=False,
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        (entry, *more), experts = shape.mixer_spec.entries, shape.experts
        name, given = catalog.parse(entry)
        clips = name == "softmax" and given.keys() == {"variant"} and given["variant"].keys() == {"clip_qkv"}
        fits = clips and not more and not shape.tie_embeddings and set(shape.bias) <= {"head"}
        must = "a dbrx requires the mixer softmax with clip_qkv only, no bias, tie_embeddings=False, and experts in "
        must += "every layer"
        came = f"got {shape.mixer_spec}, {shape.bias}, {shape.tie_embeddings}, experts={experts}"
        if experts is None or experts.dense_layers or not fits:
            raise ValueError(f"{must}; {came}; use save_pretrained instead")
        found = spec_to_rope_parameters(shape.scheme_spec, shape.bindable_sizes["head_width"])
        kv_heads = shape.heads if shape.kv_heads is None else shape.kv_heads
        return {
            "vocab_size": shape.vocabulary,
            "d_model": shape.width,
            "n_heads": shape.heads,
            "n_layers": shape.layers,
            "max_seq_len": shape.max_length,
            "attn_config": {
                "clip_qkv": float(given["variant"]["clip_qkv"]),
                "kv_n_heads": kv_heads,
                # transformers needs it, and does not use it
                "rope_theta": found["rope_theta"],
            },
            "ffn_config": {
                "ffn_act_fn": {"name": activation_name(shape.feedforward, HF_GATES)},
                "ffn_hidden_size": shape.hidden_width,
                "moe_num_experts": experts.count,
                "moe_top_k": experts.chosen,
                "moe_normalize_expert_weights": 1.0 if experts.normalise else None,
            },
            "rope_parameters": found,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.blocks.{}", "blocks.{}"
        normed, experts = f"{there}.norm_attn_norm", f"{there}.ffn.experts.mlp"
        return [
            TensorRule("tokens.weight", ("transformer.wte.weight",)),
            *linear_rules("norm", "transformer.norm_f", bias=False),
            *linear_rules(f"{here}.mixer_norm", f"{normed}.norm_1", bias=False),
            *linear_rules(f"{here}.feedforward_norm", f"{normed}.norm_2", bias=False),
            *linear_rules(f"{here}.mixer.project", f"{normed}.attn.Wqkv", bias=False),
            *linear_rules(f"{here}.mixer.out", f"{normed}.attn.out_proj", bias=False),
            *linear_rules(f"{here}.feedforward.router", f"{there}.ffn.router.layer", bias=False),
            StackedExperts(f"{here}.feedforward.widen.weight", (f"{experts}.w1", f"{experts}.v1")),
            TransposedExperts(f"{here}.feedforward.narrow.weight", (f"{experts}.w2",)),
            TensorRule("head.weight", ("lm_head.weight",)),
        ]


def _activation(inner: Mapping[str, Any]) -> Any:
    """Return the name of the activation function of experts."""
    given = inner["ffn_act_fn"]
    return "silu" if given is None else given.get("name", "silu")


def _experts(inner: Mapping[str, Any]) -> ExpertOptions:
    """Return the experts of each layer."""
    power, count, chosen = (inner[name] for name in ("moe_normalize_expert_weights", "moe_num_experts", "moe_top_k"))
    must = "moe_normalize_expert_weights must be 1, the sum of the weights by which they are divided, or null"
    need(power in (None, 1), must, f"got {shown(power)}", "load another checkpoint")
    must = "moe_top_k must be at most moe_num_experts"
    need(chosen <= count, must, f"got {chosen} of {count}", "load another checkpoint")
    return ExpertOptions(count=count, chosen=chosen, normalise=power is not None)
