"""MPT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules, need_settings
from ordinate.pretrained.decoder_like import DecoderLike

MIXER, SCALED = "softmax", "softmax:variant.scale="


class Mpt(DecoderLike):
    """MPT: ALiBi, no biases, not even in LayerNorm.

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
        attention = config["attn_config"] or {}
        need_settings(self, config, logit_scale=None)
        need_settings(self, attention, alibi=True, alibi_bias_max=8, clip_qkv=None, qk_ln=False, prefix_lm=False)
        scale = attention.get("softmax_scale")
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["d_model"],
            layers=config["n_layers"],
            heads=config["n_heads"],
            scheme="alibi",
            mixer=MIXER if scale is None else f"{SCALED}{scale}",
            max_length=config["max_seq_len"],
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            feedforward="gelu",
            # whatever expansion_ratio says, as in transformers
            hidden=4 * config["d_model"],
            bias=(),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        scaled = shape.mixer_spec.startswith(SCALED) and "," not in shape.mixer_spec
        need(
            shape.scheme_spec == "alibi" and (shape.mixer_spec == MIXER or scaled) and set(shape.bias) <= {"head"},
            f"an mpt requires scheme alibi, mixer {MIXER} or {SCALED}NUMBER, and no bias",
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
            "attn_config": {"alibi": True}
            | ({"softmax_scale": float(shape.mixer_spec[len(SCALED) :])} if scaled else {}),
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
