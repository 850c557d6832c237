"""Bloom."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checks import need
from ordinate.family import Family, HeadByHead, Rule, linear, need_settings
from ordinate.models.shape import Shape

MIXER = "softmax:variant.bias=true"


class Bloom(Family):
    """ALiBi, and a norm of the token vectors before the first layer.

    Source: BigScience Workshop 2022, https://arxiv.org/abs/2211.05100.
    """

    model_type = "bloom"
    prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "BloomForCausalLM"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json."""
        need_settings(self, config, apply_residual_connection_post_layernorm=False)
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["n_layer"],
            heads=config["n_head"],
            scheme="alibi",
            mixer=MIXER,
            # its config.json names no length: ALiBi has none
            max_length=config.get("seq_length", 2048),
            norm="layer",
            epsilon=config["layer_norm_epsilon"],
            feedforward="gelu_tanh",
            hidden=4 * config["hidden_size"],
            bias=("norm", "feedforward"),
            tied=config["tie_word_embeddings"],
            embedding_norm=True,
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        need(
            shape.scheme == "alibi" and shape.mixer == MIXER and shape.hidden_width == 4 * shape.width,
            f"a bloom has alibi, {MIXER} and 4 width columns inside",
            f"got {shape.scheme}, {shape.mixer}, {shape.hidden_width}",
            "save it as our own",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "seq_length": shape.max_length,
            "layer_norm_epsilon": shape.epsilon,
            "tie_word_embeddings": shape.tied,
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here = "transformer.h.{}", "blocks.{}"
        rules = [
            Rule("tokens.weight", ("transformer.word_embeddings.weight",)),
            *linear("embedding_norm", "transformer.word_embeddings_layernorm", bias=True),
            *linear("norm", "transformer.ln_f", bias=True),
            *linear(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear(f"{here}.feedforward_norm", f"{there}.post_attention_layernorm", bias=True),
            *linear(f"{here}.mixer.project", f"{there}.self_attention.query_key_value", kind=HeadByHead, bias=True),
            *linear(f"{here}.mixer.out", f"{there}.self_attention.dense", bias=True),
            *linear(f"{here}.feedforward.widen", f"{there}.mlp.dense_h_to_4h", bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.mlp.dense_4h_to_h", bias=True),
        ]
        return rules if shape.tied else [*rules, Rule("head.weight", ("lm_head.weight",))]
