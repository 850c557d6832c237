"""GPT-2."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checks import need
from ordinate.family import (
    ACTIVATIONS,
    Family,
    Rule,
    Transposed,
    activation_of,
    linear,
    need_activation,
    need_settings,
)
from ordinate.models.shape import Shape

MIXER = "softmax:variant.bias=true"


class Gpt2(Family):
    """Learned positions, layer norms before each branch, numbers added everywhere.

    Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners.
    """

    model_type = "gpt2"
    prefix = "transformer."
    # masks that older versions kept beside the weights
    aside = ("attn.bias", "attn.masked_bias")
    defaults: ClassVar[Mapping[str, Any]] = {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "tie_word_embeddings": True,
    }

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "GPT2LMHeadModel"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json."""
        need_settings(
            self, config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False
        )
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["n_embd"],
            layers=config["n_layer"],
            heads=config["n_head"],
            scheme="learned",
            mixer=MIXER,
            max_length=config["n_positions"],
            norm="layer",
            epsilon=config["layer_norm_epsilon"],
            feedforward=need_activation(config["activation_function"], ACTIVATIONS),
            hidden=config["n_inner"] or 4 * config["n_embd"],
            bias=("norm", "feedforward"),
            tied=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        came = f"got {shape.scheme}, {shape.mixer}"
        need(
            shape.scheme == "learned" and shape.mixer == MIXER,
            f"a gpt2 has learned, {MIXER}",
            came,
            "save it as our own",
        )
        return {
            "vocab_size": shape.vocabulary,
            "n_embd": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "n_positions": shape.max_length,
            "n_inner": shape.hidden_width,
            "layer_norm_epsilon": shape.epsilon,
            "activation_function": activation_of(shape.feedforward),
            "tie_word_embeddings": shape.tied,
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here = "transformer.h.{}", "blocks.{}"
        rules = [
            Rule("tokens.weight", ("transformer.wte.weight",)),
            Rule("schemes.0.table", ("transformer.wpe.weight",)),
            *linear("norm", "transformer.ln_f", bias=True),
            *linear(f"{here}.mixer_norm", f"{there}.ln_1", bias=True),
            *linear(f"{here}.feedforward_norm", f"{there}.ln_2", bias=True),
            *linear(f"{here}.mixer.project", f"{there}.attn.c_attn", kind=Transposed, bias=True),
            *linear(f"{here}.mixer.out", f"{there}.attn.c_proj", kind=Transposed, bias=True),
            *linear(f"{here}.feedforward.widen", f"{there}.mlp.c_fc", kind=Transposed, bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.mlp.c_proj", kind=Transposed, bias=True),
        ]
        return rules if shape.tied else [*rules, Rule("head.weight", ("lm_head.weight",))]
