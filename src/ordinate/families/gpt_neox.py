"""GPT-NeoX."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checkpoints.rope_parameters import parameters_of, rope_line, rope_parameters
from ordinate.checks import need
from ordinate.family import (
    ACTIVATIONS,
    Family,
    HeadByHead,
    Rule,
    activation_of,
    linear,
    need_activation,
    need_settings,
)
from ordinate.models.shape import Shape

MIXER = "softmax:variant.bias=true"


class GptNeox(Family):
    """Rope on a quarter of each head's channels, both branches side by side (Pythia is one).

    Source: Black et al. 2022, GPT-NeoX-20B, https://arxiv.org/abs/2204.06745.
    """

    model_type = "gpt_neox"
    prefix = "gpt_neox."
    aside = ("attention.bias", "attention.masked_bias", "rotary_emb.inv_freq")
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
    }

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "GPTNeoXForCausalLM"

    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes in a config.json."""
        need_settings(self, config, attention_bias=True)
        width, heads = config["hidden_size"], config["num_attention_heads"]
        # what the family said before transformers had one word for all
        early = {"rope_theta": config.get("rotary_emb_base"), "partial_rotary_factor": config.get("rotary_pct")}
        rotation = {key: value for key, value in early.items() if value is not None} | dict(config)
        parameters = {"partial_rotary_factor": 0.25} | rope_parameters(rotation)
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            scheme=rope_line(parameters, width // heads, config["max_position_embeddings"]),
            mixer=MIXER,
            max_length=config["max_position_embeddings"],
            norm="layer",
            epsilon=config["layer_norm_eps"],
            order="parallel" if config["use_parallel_residual"] else "pre",
            feedforward=need_activation(config["hidden_act"], ACTIVATIONS),
            hidden=config["intermediate_size"],
            bias=("norm", "feedforward"),
            tied=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        need(
            shape.order in ("parallel", "pre") and shape.mixer == MIXER,
            f"a gpt_neox has the order parallel or pre, and {MIXER}",
            f"got {shape.order}, {shape.mixer}",
            "save it as our own",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.hidden_width,
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.epsilon,
            "use_parallel_residual": shape.order == "parallel",
            "hidden_act": activation_of(shape.feedforward),
            "rope_parameters": {"partial_rotary_factor": 1.0}
            | parameters_of(shape.scheme, shape.width // shape.heads),
            "tie_word_embeddings": shape.tied,
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        there, here = "gpt_neox.layers.{}", "blocks.{}"
        rules = [
            Rule("tokens.weight", ("gpt_neox.embed_in.weight",)),
            *linear("norm", "gpt_neox.final_layer_norm", bias=True),
            *linear(f"{here}.mixer_norm", f"{there}.input_layernorm", bias=True),
            *linear(f"{here}.feedforward_norm", f"{there}.post_attention_layernorm", bias=True),
            *linear(f"{here}.mixer.project", f"{there}.attention.query_key_value", kind=HeadByHead, bias=True),
            *linear(f"{here}.mixer.out", f"{there}.attention.dense", bias=True),
            *linear(f"{here}.feedforward.widen", f"{there}.mlp.dense_h_to_4h", bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.mlp.dense_4h_to_h", bias=True),
        ]
        return rules if shape.tied else [*rules, Rule("head.weight", ("embed_out.weight",))]
