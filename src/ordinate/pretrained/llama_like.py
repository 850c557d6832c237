"""Base class of Llama-like decoders."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import (
    HF_GATES,
    StackedPair,
    StackedQKV,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
)
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters

FULL, SLIDING = "full_attention", "sliding_attention"


class LlamaLike(DecoderLike):
    """Llama-like decoders: RoPE, pre-norm with RMSNorm, gated feed-forward, grouped-query attention.

    Must: `model_type`, `causal_lm_class`, `base_class` and `defaults`.
    May: `bias` (on the QKV projection), `optional_biases`, `qk_norm`, `windows` and `window_config`.
    """

    prefix = "model."
    token_classifier = "score"
    ignored_suffixes = ("rotary_emb.inv_freq",)
    usual: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "token_classification_bias": True,
        "head_dim": None,
        "rope_parameters": None,
    }
    """Default values that Llama-like families share."""
    bias: ClassVar[bool] = False
    """Whether the QKV projection has a bias, and the output projection none."""
    optional_biases: ClassVar[tuple[str, ...]] = ()
    """Keys of config.json that add biases: `attention_bias`, `mlp_bias`."""
    qk_norm: ClassVar[bool] = False
    """Whether queries and keys of each head are normalised."""

    def token_bias(self) -> bool:
        return bool(self.settings["token_classification_bias"])

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        head_width = config["head_dim"] or width // heads
        biases = {name: bool(config[name]) for name in self.optional_biases}
        length = config["max_position_embeddings"]
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"] or heads,
            head_width=head_width,
            scheme=rope_spec(rope_parameters(config), head_width, length),
            mixer=self._mixer(config["rms_norm_eps"], biased=biases.get("attention_bias", False)),
            sliding_windows=self.windows(config),
            max_length=length,
            norm_eps=config["rms_norm_eps"],
            feedforward=activation_kind(config, "hidden_act", HF_GATES),
            bias=("norm", "feedforward") if biases.get("mlp_bias") else ("norm",),
            hidden=config["intermediate_size"],
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        need(
            shape.feedforward in GATED and shape.norm == "rms" and shape.norm_position == "pre",
            f"a {self.model_type} requires swiglu or another gated feedforward, rms norms and norm_position pre",
            f"got {shape.feedforward}, {shape.norm} and {shape.norm_position}",
            "choose another family, or use save_pretrained",
        )
        mixers = {self._mixer(shape.norm_eps, biased=biased): biased for biased in (True, False)}
        need(
            shape.mixer_spec in mixers,
            f"a {self.model_type} requires the mixer {self._mixer(shape.norm_eps, biased=False)!r}",
            f"got {shape.mixer_spec!r}",
            "choose another family, or use save_pretrained",
        )
        biases = {"attention_bias": mixers[shape.mixer_spec], "mlp_bias": "feedforward" in shape.bias}
        plain = shape.head == "token_classes" and "head" not in shape.bias
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": width,
            "hidden_act": activation_name(shape.feedforward, HF_GATES),
            **{name: biases[name] for name in self.optional_biases},
            "max_position_embeddings": shape.max_length,
            "rms_norm_eps": shape.norm_eps,
            "rope_parameters": spec_to_rope_parameters(shape.scheme_spec, width),
            "tie_word_embeddings": shape.tie_embeddings,
            **({"token_classification_bias": False} if plain else {}),
            **self.window_config(shape),
        }

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        """Return the sliding window of each layer; a single entry applies to all."""
        return (None,)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        """Return the config.json keys of the sliding windows."""
        need(
            set(shape.sliding_windows) == {None},
            f"a {self.model_type} has no windows",
            f"got sliding_windows={shape.sliding_windows}",
            "remove them",
        )
        return {}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        gates = [f"{there}.mlp.{part}_proj" for part in ("gate", "up")]
        biased = "attention_bias" in self.optional_biases and shape.mixer_spec == self._mixer(
            shape.norm_eps, biased=True
        )
        wide = "feedforward" in shape.bias
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            TensorRule("norm.weight", ("model.norm.weight",)),
            TensorRule(f"{here}.mixer_norm.weight", (f"{there}.input_layernorm.weight",)),
            TensorRule(f"{here}.feedforward_norm.weight", (f"{there}.post_attention_layernorm.weight",)),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=biased or self.bias),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=biased),
            *linear_rules(f"{here}.feedforward.widen", *gates, kind=StackedPair, bias=wide),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=wide),
        ]
        if self.qk_norm:
            rules += [
                TensorRule(f"{here}.mixer.{x}_norm.weight", (f"{there}.self_attn.{x}_norm.weight",)) for x in "qk"
            ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

    def _mixer(self, norm_eps: float | None, *, biased: bool) -> str:
        """Return the mixer, with biases of all its projections or those that the family always has."""
        options = ["variant.bias=true", "variant.out_bias=false"] if self.bias else []
        options = ["variant.bias=true"] if biased and "attention_bias" in self.optional_biases else options
        options += ["variant.qk_norm=true", f"variant.norm_eps={norm_eps}"] if self.qk_norm else []
        return "softmax:" + ",".join(options) if options else "softmax"


WINDOW_DEFAULTS: Mapping[str, Any] = {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
"""Default values of the keys of sliding windows by layer."""


def need_window_size(window: int | None) -> None:
    """Raise a ValueError unless a sliding window, if there is one, has more than one token."""
    must = "sliding_window in config.json must be above 1, or null: for 1, the cache of transformers keeps all tokens"
    need(window is None or window > 1, must, f"got {window}", "correct it, or download the file again")


def layer_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the sliding windows from the `layer_types` of a config.json, or as its other keys imply."""
    window, first = config["sliding_window"] if config["use_sliding_window"] else None, config["max_window_layers"]
    need_window_size(window)
    types, count = config["layer_types"], config["num_hidden_layers"]
    if types is None:
        must = "max_window_layers must be the number of layers without a window, where the others have one"
        need(window is None or first is not None, must, f"got {first}", "set it, or layer_types, in config.json")
        types = [FULL if window is None or layer < first else SLIDING for layer in range(count)]
    unknown = sorted(set(types) - {FULL, SLIDING})
    need(
        not unknown,
        "layer types must be full_attention or sliding_attention",
        f"got layer_types with {', '.join(unknown)}",
        "load another checkpoint",
    )
    need(
        window is not None or SLIDING not in types,
        "layer_types with sliding_attention need a sliding_window, and use_sliding_window",
        f"got sliding_window={config['sliding_window']}, use_sliding_window={config['use_sliding_window']}",
        "set both in config.json, or make all layers full_attention",
    )
    windows = tuple(window if kind == SLIDING else None for kind in types)
    return (windows[0],) if len(set(windows)) == 1 else windows


def layer_types(shape: Shape) -> dict[str, Any]:
    """Return the config.json keys of sliding windows by layer."""
    sizes = sorted({window for window in shape.layer_windows if window is not None})
    need(
        len(sizes) <= 1, "all sliding windows must have the same size", f"got {sizes}", "use save_pretrained instead"
    )
    return {
        "sliding_window": sizes[0] if sizes else None,
        "use_sliding_window": bool(sizes),
        "layer_types": [FULL if window is None else SLIDING for window in shape.layer_windows],
    }
