"""Base class of GPT-2 and what has its layers."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_ACTIVATIONS, activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike

MIXER = "softmax:variant.bias=true"
"""The mixer of models with the usual scale of scores."""
# parts of a layer that read the output of an encoder
CROSS_ATTENTION = tuple(
    f"{part}.{kind}"
    for part in ("crossattention.c_attn", "crossattention.q_attn", "crossattention.c_proj", "ln_cross_attn")
    for kind in ("weight", "bias")
)


class Gpt2Like(DecoderLike):
    """Decoders with learned absolute positions, pre-norm with LayerNorm, and biases in every layer.

    Must: `model_type`, `causal_lm_class`, `base_class`, `defaults`, and `mixers`.
    May: `activations`; `matrix` and `projection`, the kinds of their tensors; and in a pair, to read and to write:
        `kv_heads` and `kv_config`.
    """

    prefix = "transformer."
    # causal-mask buffers stored by older versions
    ignored_suffixes = ("attn.bias", "attn.masked_bias")
    usual: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "scale_attn_weights": True,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    """Default values that these families share."""
    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    activations: ClassVar[Mapping[str, FeedForwardKind]] = HF_ACTIVATIONS
    """The feed-forward of each name of an activation function."""
    matrix: ClassVar[type[TensorRule]] = TensorRule
    """The kind of weight matrices."""
    projection: ClassVar[type[TensorRule]] = TensorRule
    """The kind of the weight matrix and the bias of queries, keys and values."""

    @abstractmethod
    def mixers(self, layers: int, head_width: int) -> Sequence[tuple[dict[str, bool], str]]:
        """Return the settings of scores in config.json, each with the mixer of models that have it."""

    def kv_heads(self, config: Mapping[str, Any]) -> int:
        """Return the number of key and value heads."""
        return config["n_head"]

    def kv_config(self, shape: Shape) -> dict[str, Any]:
        """Return the config.json keys of the key and value heads."""
        heads = shape.heads if shape.kv_heads is None else shape.kv_heads
        must, came = f"a {self.model_type} has a key head for each query head", f"got {heads} for {shape.heads}"
        need(heads == shape.heads, must, came, "use save_pretrained instead")
        return {}

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Say that cross-attention is left out: transformers computes it only from the output of an encoder."""
        if config["add_cross_attention"]:
            self.warning = "cross-attention is not loaded: it is used only together with an encoder"
        return dict(config)

    def shape(self, config: Mapping[str, Any]) -> Shape:
        mixers = self.mixers(config["n_layer"], config["n_embd"] // config["n_head"])
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["n_embd"],
            layers=config["n_layer"],
            heads=config["n_head"],
            kv_heads=self.kv_heads(config),
            scheme="learned",
            mixer=next(mixer for told, mixer in mixers if all(told[name] == bool(config[name]) for name in told)),
            max_length=config["n_positions"],
            norm="layer",
            norm_eps=config["layer_norm_epsilon"],
            feedforward=activation_kind(config, "activation_function", self.activations),
            hidden=4 * config["n_embd"] if config["n_inner"] is None else config["n_inner"],
            bias=("norm", "feedforward"),
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixers = self.mixers(shape.layers, shape.bindable_sizes["head_width"])
        found = [told for told, mixer in mixers if shape.mixer_spec == mixer]
        need(
            shape.scheme_spec == "learned" and len(found) > 0,
            f"a {self.model_type} requires scheme learned and mixer {MIXER}",
            f"got {shape.scheme_spec}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "n_embd": shape.width,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            **self.kv_config(shape),
            "n_positions": shape.max_length,
            "n_inner": shape.hidden_width,
            "layer_norm_epsilon": shape.norm_eps,
            "activation_function": activation_name(shape.feedforward, self.activations),
            **found[0],
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        return (*self.ignored_suffixes, *(CROSS_ATTENTION if self.settings.get("add_cross_attention") else ()))

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "transformer.h.{}", "blocks.{}"
        rules = [
            TensorRule("tokens.weight", ("transformer.wte.weight",)),
            TensorRule("schemes.0.table", ("transformer.wpe.weight",)),
            *linear_rules("norm", "transformer.ln_f", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.ln_1", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.ln_2", bias=True),
            *linear_rules(f"{here}.mixer.project", f"{there}.attn.c_attn", kind=self.projection, bias=True),
            *linear_rules(f"{here}.mixer.out", f"{there}.attn.c_proj", kind=self.matrix, bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.c_fc", kind=self.matrix, bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.c_proj", kind=self.matrix, bias=True),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]
