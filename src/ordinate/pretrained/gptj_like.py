"""Base class of GPT-J and what has its layers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import spec_to_rope_parameters


class GptjLike(DecoderLike):
    """Decoders with RoPE on interleaved channel pairs, parallel attention and feed-forward after a shared norm.

    Must: `model_type`, `causal_lm_class`, `base_class`, `heads`, and `projection_rules`.
    """

    prefix = "transformer."
    ignored_suffixes = ("attn.bias", "attn.masked_bias", "attn.embed_positions")
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_400,
        "n_positions": 2048,
        "n_embd": 4096,
        "n_layer": 28,
        "n_head": 16,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "rotary_dim": 64,
        "tie_word_embeddings": False,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    @abstractmethod
    def projection_rules(self, shape: Shape) -> Sequence[TensorRule]:
        """Return the tensor mappings of queries, keys and values in each layer."""

    def shape(self, config: Mapping[str, Any]) -> Shape:
        head_width = config["n_embd"] // config["n_head"]
        rotated = config["rotary_dim"]
        must, came = f"rotary_dim must be an even number of at most {head_width} channels", f"got {rotated}"
        # transformers does not run others
        need(rotated % 2 == 0 and rotated <= head_width, must, came, "load another checkpoint")
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["n_embd"],
            layers=config["n_layer"],
            heads=config["n_head"],
            scheme=f"rope:layout=interleaved,rotary_dim={rotated}",
            max_length=config["n_positions"],
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            norm_position="shared",
            feedforward=activation_kind(config, "activation_function"),
            hidden=4 * config["n_embd"] if config["n_inner"] is None else config["n_inner"],
            bias=("norm", "feedforward", "head"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        head_width = shape.width // shape.heads
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)
        need(
            shape.scheme_spec != "none"
            and shape.norm_position == "shared"
            and shape.mixer_spec == "softmax"
            and parameters["rope_theta"] == 10_000.0,
            f"a {self.model_type} requires norm_position shared, mixer softmax, and rope with theta 10000",
            f"got {shape.norm_position}, {shape.mixer_spec}, {shape.scheme_spec}",
            "use save_pretrained instead",
        )
        rotated = round(parameters.get("partial_rotary_factor", 1.0) * head_width)
        must, came = (
            f"the scheme of a {self.model_type} rotates an even number of channels",
            f"got {shape.scheme_spec}",
        )
        need(rotated % 2 == 0, must, came, "choose another rotary_dim, or use save_pretrained")
        return {
            "vocab_size": shape.vocabulary,
            "n_embd": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "n_positions": shape.max_length,
            "n_inner": shape.hidden_width,
            "rotary_dim": rotated,
            "layer_norm_epsilon": shape.norm_eps,
            "activation_function": activation_name(shape.feedforward),
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.h.{}", "blocks.{}"
        rules = [
            TensorRule("tokens.weight", ("transformer.wte.weight",)),
            *linear_rules("norm", "transformer.ln_f", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.ln_1", bias=True),
            *self.projection_rules(shape),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.out_proj", bias=False),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.fc_in", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.fc_out", bias=True),
        ]
        return [*rules, *self.head_rules(shape)]
