"""Base class of Llama-like decoders."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.models.block import NormPosition
from ordinate.models.feedforward import GATED, FeedForwardKind
from ordinate.models.shape import Norm, Shape
from ordinate.pretrained._family import (
    HF_GATES,
    LAYER_PLACEHOLDER,
    StackedPair,
    StackedQKV,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
)
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters


class LlamaLike(DecoderLike):
    """Llama-like decoders: RoPE, pre-norm with RMSNorm, gated feed-forward, grouped-query attention.

    Must: `model_type`, `causal_lm_class`, `base_class` and `defaults`.
    May: `bias` (on the QKV projection), `optional_biases`, `bias_key`, `out_bias`, `sinks`, `qk_norm`,
        `qk_norm_key`, `qk_norm_across`, `norm`, `norm_position`, `norms`, `zero_centred`, `fused_projections`,
        `fused_gates`, `activation_key`, `gates`, `score_options`, `feedforward_rules`, and in pairs, to read and to
        write: `scheme` and `scheme_config`, `windows` and `window_config`, `scores` and `score_config`, `scales` and
        `scale_config`.
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
    """Keys of config.json that add biases: `bias_key`, `mlp_bias`."""
    bias_key: ClassVar[str] = "attention_bias"
    """The key of those of the projections of attention."""
    out_bias: ClassVar[bool] = True
    """Whether it adds one to the output projection too."""
    sinks: ClassVar[bool] = False
    """Whether heads have attention sinks."""
    qk_norm: ClassVar[bool] = False
    """Whether queries and keys of each head are normalised."""
    qk_norm_key: ClassVar[str] = ""
    """The key that says so, in families in which some models have that norm."""
    qk_norm_across: ClassVar[bool] = False
    """Whether that norm is one of all heads together."""
    norm: ClassVar[Norm] = "rms"
    """Kind of norms."""
    norm_position: ClassVar[NormPosition] = "pre"
    """Position of the norms."""
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_norm": "input_layernorm",
        "feedforward_norm": "post_attention_layernorm",
    }
    """Names of the norms of a layer in checkpoints."""
    fused_projections: ClassVar[bool] = False
    """Whether checkpoints have one tensor for queries, keys and values."""
    fused_gates: ClassVar[bool] = False
    """Whether checkpoints have one tensor for gate and up projection."""
    zero_centred: ClassVar[bool] = False
    """Whether the weights of all norms are added to 1."""
    activation_key: ClassVar[str] = "hidden_act"
    """The key of the activation function."""
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_GATES
    """The gated feed-forward of each name of an activation function."""
    score_options: ClassVar[tuple[str, ...]] = ()
    """The options of the mixer for scores that the family can have: `scale`, `softcap`."""

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        head_width = config["head_dim"] or width // heads
        biases = {name: bool(config[name]) for name in self.optional_biases}
        scores = self.scores(config, head_width)
        parts = biases.get(self.bias_key, False), bool(config.get(self.qk_norm_key, self.qk_norm))
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"] or heads,
            head_width=head_width,
            scheme=self.scheme(config, head_width),
            mixer=self._mixer(config["rms_norm_eps"], scores, *parts),
            sliding_windows=self.windows(config),
            max_length=config["max_position_embeddings"],
            norm=self.norm,
            norm_eps=config["rms_norm_eps"],
            norm_position=self.norm_position,
            zero_centred_norm=self.zero_centred,
            feedforward=activation_kind(config, self.activation_key, self.gates),
            bias=("norm", "feedforward") if biases.get("mlp_bias") else ("norm",),
            hidden=config["intermediate_size"],
            tie_embeddings=config["tie_word_embeddings"],
            **self.scales(config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        norms = shape.norm, shape.norm_position, shape.zero_centred_norm
        need(
            shape.feedforward in GATED and norms == (self.norm, self.norm_position, self.zero_centred),
            f"a {self.model_type} requires swiglu or another gated feedforward, {self.norm} norms, norm_position "
            f"{self.norm_position} and zero_centred_norm={self.zero_centred}",
            f"got {shape.feedforward}, {', '.join(map(str, norms))}",
            "choose another family, or use save_pretrained",
        )
        scores, mixers = self._given_scores(shape), self._mixers(shape)
        need(
            shape.mixer_spec in mixers,
            f"a {self.model_type} requires the mixer {list(mixers)[-1]!r}",
            f"got {shape.mixer_spec!r}",
            "choose another family, or use save_pretrained",
        )
        biased, normed = mixers[shape.mixer_spec]
        biases = {self.bias_key: biased, "mlp_bias": "feedforward" in shape.bias}
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": width,
            self.activation_key: activation_name(shape.feedforward, self.gates),
            **{name: biases[name] for name in self.optional_biases},
            **({self.qk_norm_key: normed} if self.qk_norm_key else {}),
            "max_position_embeddings": shape.max_length,
            "rms_norm_eps": shape.norm_eps,
            **self.scheme_config(shape, width),
            "tie_word_embeddings": shape.tie_embeddings,
            **self.window_config(shape),
            **self.score_config(scores, width),
            **self.scale_config(shape),
        }

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        """Return the `scheme` of a shape: RoPE with the parameters that config.json has."""
        return rope_spec(rope_parameters(config), head_width, config["max_position_embeddings"])

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        """Return the config.json keys of the scheme."""
        return {"rope_parameters": spec_to_rope_parameters(shape.scheme_spec, head_width)}

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

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        """Return the options of the mixer for scores, `scale` and `softcap`; None: the usual ones."""
        return {}

    def score_config(self, scores: Mapping[str, float | None], head_width: int) -> dict[str, Any]:
        """Return the config.json keys of the options for scores."""
        return {}

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a shape has for the scales of embeddings, branches and logits."""
        return {}

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        """Return the config.json keys of these scales."""
        return {}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        parts = [f"{there}.self_attn.{part}_proj" for part in (("qkv",) if self.fused_projections else "qkv")]
        stacked = TensorRule if self.fused_projections else StackedQKV
        biased, normed = self._mixers(shape).get(shape.mixer_spec, (False, self.qk_norm))
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            TensorRule("norm.weight", ("model.norm.weight",)),
            *(TensorRule(f"{here}.{ours}.weight", (f"{there}.{name}.weight",)) for ours, name in self.norms.items()),
            *linear_rules(f"{here}.mixer.project", *parts, kind=stacked, bias=biased or self.bias),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=biased and self.out_bias),
            *self.feedforward_rules(shape),
        ]
        if normed:
            rules += [
                TensorRule(f"{here}.mixer.{x}_norm.weight", (f"{there}.self_attn.{x}_norm.weight",)) for x in "qk"
            ]
        if self.sinks:
            rules.append(TensorRule(f"{here}.mixer.sinks", (f"{there}.self_attn.sinks",)))
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

    def feedforward_rules(self, shape: Shape, layer: str = LAYER_PLACEHOLDER) -> Sequence[TensorRule]:
        """Return the tensor mappings of the feed-forward of a layer, or of each."""
        there, here, biased = f"model.layers.{layer}.mlp", f"blocks.{layer}.feedforward", "feedforward" in shape.bias
        gates = [f"{there}.{part}_proj" for part in (("gate_up",) if self.fused_gates else ("gate", "up"))]
        pair = TensorRule if self.fused_gates else StackedPair
        return [
            *linear_rules(f"{here}.widen", *gates, kind=pair, bias=biased),
            *linear_rules(f"{here}.narrow", f"{there}.down_proj", bias=biased),
        ]

    def _given_scores(self, shape: Shape) -> dict[str, float | None]:
        """Return the options of the scores that the mixer of a shape has, those that the family can have."""
        given = catalog.parse(shape.mixer_spec.entries[0])[1].get("variant", {})
        written = {name: given.get(name, "none") for name in self.score_options}
        return {name: None if text == "none" else float(text) for name, text in written.items()}

    def _mixers(self, shape: Shape) -> dict[str, tuple[bool, bool]]:
        """Return the mixers that the family can have with the scores of a shape, and their biases and QK-norms."""
        norms = (True, False) if self.qk_norm_key else (self.qk_norm,)
        parts = [(biased, normed) for biased in (True, False) for normed in norms]
        scores = self._given_scores(shape)
        return {self._mixer(shape.norm_eps, scores, *part): part for part in parts}

    def _mixer(self, norm_eps: float | None, scores: Mapping[str, float | None], biased: bool, normed: bool) -> str:
        """Return the mixer, with biases of all its projections or those that the family always has, and QK-norm."""
        own = biased and self.bias_key in self.optional_biases
        options = ["variant.bias=true"] if own or self.bias else []
        options += [] if not options or (own and self.out_bias) else ["variant.out_bias=false"]
        options += ["variant.qk_norm=true", f"variant.norm_eps={norm_eps}"] if normed else []
        options += ["variant.qk_norm_across=true"] if self.qk_norm_across else []
        options += ["variant.qk_norm_zero_centred=true"] if normed and self.zero_centred else []
        options += ["variant.sinks=true"] if self.sinks else []
        options += [f"variant.{name}={value}" for name, value in scores.items() if value is not None]
        return "softmax:" + ",".join(options) if options else "softmax"


def unusual_scale(scale: float, head_width: int) -> float | None:
    """Return a factor of scores; None: it is the usual one, 1 / sqrt(head_width)."""
    return None if scale == head_width**-0.5 else float(scale)
