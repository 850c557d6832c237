"""MPT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checks import need
from ordinate.family import Family, Rule, linear, need_settings
from ordinate.models.shape import Shape


class Mpt(Family):
    """ALiBi, and numbers added nowhere, not even by norms.

    Source: MosaicML 2023, https://www.databricks.com/blog/mpt-7b.
    """

    model_type = "mpt"
    prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        "layer_norm_epsilon": 1e-5,
        "expansion_ratio": 4,
        "tie_word_embeddings": True,
        "attn_config": {},
    }

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "MptForCausalLM"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json."""
        need_settings(self, config, no_bias=True, logit_scale=None)
        need_settings(
            self, config["attn_config"], alibi=True, alibi_bias_max=8, clip_qkv=None, qk_ln=False, softmax_scale=None
        )
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["d_model"],
            layers=config["n_layers"],
            heads=config["n_heads"],
            scheme="alibi",
            max_length=config["max_seq_len"],
            norm="layer",
            epsilon=config["layer_norm_epsilon"],
            feedforward="gelu",
            hidden=config["expansion_ratio"] * config["d_model"],
            bias=(),
            tied=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        need(
            shape.scheme == "alibi" and shape.mixer == "softmax" and not shape.bias,
            "an mpt has alibi, softmax, and no bias",
            f"got {shape.scheme}, {shape.mixer}, {shape.bias}",
            "save it as our own",
        )
        return {
            "vocab_size": shape.vocabulary,
            "d_model": shape.width,
            "n_layers": shape.layers,
            "n_heads": shape.heads,
            "max_seq_len": shape.max_length,
            "expansion_ratio": shape.hidden_width // shape.width,
            "layer_norm_epsilon": shape.epsilon,
            "no_bias": True,
            "attn_config": {"alibi": True},
            "tie_word_embeddings": shape.tied,
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here = "transformer.blocks.{}", "blocks.{}"
        rules = [
            Rule("tokens.weight", ("transformer.wte.weight",)),
            *linear("norm", "transformer.norm_f", bias=False),
            *linear(f"{here}.mixer_norm", f"{there}.norm_1", bias=False),
            *linear(f"{here}.feedforward_norm", f"{there}.norm_2", bias=False),
            *linear(f"{here}.mixer.project", f"{there}.attn.Wqkv", bias=False),
            *linear(f"{here}.mixer.out", f"{there}.attn.out_proj", bias=False),
            *linear(f"{here}.feedforward.widen", f"{there}.ffn.up_proj", bias=False),
            *linear(f"{here}.feedforward.narrow", f"{there}.ffn.down_proj", bias=False),
        ]
        return rules if shape.tied else [*rules, Rule("head.weight", ("lm_head.weight",))]
