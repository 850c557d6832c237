"""GPT-J."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checkpoints.rope_parameters import parameters_of, rope_line
from ordinate.checks import need
from ordinate.family import ACTIVATIONS, Family, Heads, Rule, activation_of, linear, need_activation
from ordinate.models.shape import Shape


class Gptj(Family):
    """Rope on neighbouring channels, both branches side by side after one norm.

    Source: Wang and Komatsuzaki 2021, GPT-J-6B, https://github.com/kingoflolz/mesh-transformer-jax.
    """

    model_type = "gptj"
    prefix = "transformer."
    aside = ("attn.bias", "attn.masked_bias", "attn.embed_positions")
    defaults: ClassVar[Mapping[str, Any]] = {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "rotary_dim": 64,
        "tie_word_embeddings": False,
    }

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "GPTJForCausalLM"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json."""
        head_width = config["n_embd"] // config["n_head"]
        rotated = config["rotary_dim"] or config["n_embd"]
        parameters = {"rope_theta": 10_000.0, "partial_rotary_factor": rotated / head_width}
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["n_embd"],
            layers=config["n_layer"],
            heads=config["n_head"],
            scheme=rope_line(parameters, head_width, config["n_positions"], layout="interleaved"),
            max_length=config["n_positions"],
            norm="layer",
            epsilon=config["layer_norm_epsilon"],
            order="shared",
            feedforward=need_activation(config["activation_function"], ACTIVATIONS),
            hidden=config["n_inner"] or 4 * config["n_embd"],
            bias=("norm", "feedforward") if config["tie_word_embeddings"] else ("norm", "feedforward", "head"),
            tied=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        head_width = shape.width // shape.heads
        parameters = parameters_of(shape.scheme, head_width)
        need(
            shape.order == "shared" and shape.mixer == "softmax" and parameters["rope_theta"] == 10_000.0,
            "a gptj has the order shared, softmax, and rope of theta 10000",
            f"got {shape.order}, {shape.mixer}, {shape.scheme}",
            "save it as our own",
        )
        return {
            "vocab_size": shape.vocabulary,
            "n_embd": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "n_positions": shape.max_length,
            "n_inner": shape.hidden_width,
            "rotary_dim": round(parameters.get("partial_rotary_factor", 1.0) * head_width),
            "layer_norm_epsilon": shape.epsilon,
            "activation_function": activation_of(shape.feedforward),
            "tie_word_embeddings": shape.tied,
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here = "transformer.h.{}", "blocks.{}"
        parts = [f"{there}.attn.{part}_proj" for part in "qkv"]
        rules = [
            Rule("tokens.weight", ("transformer.wte.weight",)),
            *linear("norm", "transformer.ln_f", bias=True),
            *linear(f"{here}.mixer_norm", f"{there}.ln_1", bias=True),
            *linear(f"{here}.mixer.project", *parts, kind=Heads, bias=False),
            *linear(f"{here}.mixer.out", f"{there}.attn.out_proj", bias=False),
            *linear(f"{here}.feedforward.widen", f"{there}.mlp.fc_in", bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.mlp.fc_out", bias=True),
        ]
        return rules if shape.tied else [*rules, *linear("head", "lm_head", bias=True)]
