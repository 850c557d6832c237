"""Base class of Llama-like decoders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.mixers._qk_norms import QKNorm
from ordinate.models.activation import LEARNED
from ordinate.models.block import NormPosition
from ordinate.models.feedforward import GATED, FeedForwardKind
from ordinate.models.norm_kinds import PARAMETRIC, Norm
from ordinate.models.shape import Shape
from ordinate.pretrained._family import LAYER_PLACEHOLDER, StackedPair, StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_GATES, activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.grouped_rows import OutputGate
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters

OUT_NORMS: Mapping[str, str] = {
    "mixer_out_norm": "post_attention_layernorm",
    "feedforward_out_norm": "post_feedforward_layernorm",
}
"""Names of the norms of a layer in checkpoints of families with norms of the outputs of branches only."""
FEEDFORWARDS = {True: "swiglu or another gated", False: "relu2 or another plain"}


@dataclass(frozen=True)
class MixerParts:
    """What the mixers of a model have.

    Args:
        biased: biases of queries, keys and values, where the family need not have them.
        out_biased: a bias of the output projection.
        normed: norms of queries and keys.
        gated: gates of the outputs of heads, where the family need not have them.
    """

    biased: bool = False
    out_biased: bool = False
    normed: bool = False
    gated: bool = False


class LlamaLike(DecoderLike):
    """Llama-like decoders: RoPE, pre-norm with RMSNorm, gated feed-forward, grouped-query attention.

    Must: `model_type`, `causal_lm_class`, `base_class` and `defaults`.
    May: `bias` (on the QKV projection), `optional_biases`, `bias_key`, `out_bias`, `out_bias_key`, `inner_bias_key`,
        `sinks`, `qk_norm`, `qk_norm_key`, `qk_norms`, `qk_norm_kind`, `qk_norm_after`, `qk_norm_across`, `norm`,
        `norm_position`, `norms`, `final_norm`, `feedforward_name`, `eps_key`, `zero_centred`, `fused_projections`,
        `stacked`, `output_gate`, `gate_name`, `gated`, `fused_gates`, `activation_key`, `gates`, `score_options`,
        `heads_divide_width`, `attention_rules`, `feedforward_rules`, `norm_rules`, and in pairs, to read and to
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
    """Keys of config.json that add biases: `bias_key`, `out_bias_key`, `inner_bias_key`."""
    bias_key: ClassVar[str] = "attention_bias"
    """The key of those of the projections of attention."""
    out_bias: ClassVar[bool] = True
    """Whether it adds one to the output projection too."""
    out_bias_key: ClassVar[str] = ""
    """The key of that of the output projection, in families in which it is one of its own."""
    inner_bias_key: ClassVar[str] = "mlp_bias"
    """The key of the biases of the feed-forward."""
    sinks: ClassVar[bool] = False
    """Whether heads have attention sinks."""
    qk_norm: ClassVar[bool] = False
    """Whether queries and keys of each head are normalised."""
    qk_norm_key: ClassVar[str] = ""
    """The key that says so, in families in which some models have that norm."""
    qk_norms: ClassVar[tuple[str, str]] = ("q_norm", "k_norm")
    """Names of the norms of queries and of keys in checkpoints."""
    qk_norm_kind: ClassVar[QKNorm] = "rms"
    """Kind of that norm."""
    qk_norm_after: ClassVar[bool] = False
    """Whether they are normalised after positions are encoded."""
    qk_norm_across: ClassVar[bool] = False
    """Whether that norm is one of all heads together."""
    norm: ClassVar[Norm] = "rms"
    """Kind of norms."""
    eps_key: ClassVar[str] = "rms_norm_eps"
    """The key of their epsilon."""
    norm_position: ClassVar[NormPosition] = "pre"
    """Position of the norms."""
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_norm": "input_layernorm",
        "feedforward_norm": "post_attention_layernorm",
    }
    """Names of the norms of a layer in checkpoints."""
    final_norm: ClassVar[str] = "norm"
    """Name of the last norm in checkpoints."""
    feedforward_name: ClassVar[str] = "mlp"
    """Name of the feed-forward of a layer in checkpoints."""
    fused_projections: ClassVar[bool] = False
    """Whether checkpoints have one tensor for queries, keys and values."""
    stacked: ClassVar[type[TensorRule]] = StackedQKV
    """The kind of their tensors otherwise."""
    output_gate: ClassVar[bool] = False
    """Whether outputs of heads have gates, whose rows checkpoints have beside those of the queries of each head."""
    gate_name: ClassVar[str] = ""
    """Name of the projection of these gates in checkpoints that have it apart, without a bias."""
    gated: ClassVar[bool] = True
    """Whether the feed-forward has a gate."""
    fused_gates: ClassVar[bool] = False
    """Whether checkpoints have one tensor for gate and up projection."""
    zero_centred: ClassVar[bool] = False
    """Whether the weights of all norms are added to 1."""
    activation_key: ClassVar[str] = "hidden_act"
    """The key of the activation function."""
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_GATES
    """The feed-forward of each name of an activation function."""
    score_options: ClassVar[tuple[str, ...]] = ()
    """The options of the mixer for scores that the family can have: `scale`, `softcap`."""
    heads_divide_width: ClassVar[bool] = False
    """Whether transformers reads only models whose width is a multiple of their heads, whatever width these have."""

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        head_width = config["head_dim"] or width // heads
        scores, eps = self.scores(config, head_width), config[self.eps_key]
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"] or heads,
            head_width=head_width,
            scheme=self.scheme(config, head_width),
            mixer=self._mixer(eps, scores, self._parts(config)),
            sliding_windows=self.windows(config),
            max_length=config["max_position_embeddings"],
            norm=self.norm,
            norm_eps=eps,
            norm_position=self.norm_position,
            zero_centred_norm=self.zero_centred,
            feedforward=activation_kind(config, self.activation_key, self.gates),
            bias=("norm", "feedforward") if self._biased(config, self.inner_bias_key) else ("norm",),
            hidden=config["intermediate_size"],
            tie_embeddings=config["tie_word_embeddings"],
            **self.scales(config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        self._check_sizes(shape)
        scores, mixers = self._given_scores(shape), self._mixers(shape)
        need(
            shape.mixer_spec in mixers,
            f"a {self.model_type} requires the mixer {list(mixers)[-1]!r}",
            f"got {shape.mixer_spec!r}",
            "choose another family, or use save_pretrained",
        )
        parts = mixers[shape.mixer_spec]
        biases = {self.inner_bias_key: "feedforward" in shape.bias, self.out_bias_key: parts.out_biased}
        biases |= {self.bias_key: parts.biased}
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
            **({self.qk_norm_key: parts.normed} if self.qk_norm_key else {}),
            "max_position_embeddings": shape.max_length,
            self.eps_key: shape.norm_eps,
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
        shifted = self.norm == "layer"
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            *self.attention_rules(shape),
            *self.feedforward_rules(shape),
            *(linear_rules("norm", f"model.{self.final_norm}", bias=shifted) if self.norm in PARAMETRIC else ()),
            *self.norm_rules(shape),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

    def norm_rules(self, shape: Shape) -> Sequence[TensorRule]:
        """Return the tensor mappings of the norms of each layer."""
        there, here, shifted = "model.layers.{}", "blocks.{}", self.norm == "layer"
        norms = self.norms.items() if self.norm in PARAMETRIC else ()
        pairs = [linear_rules(f"{here}.{ours}", f"{there}.{name}", bias=shifted) for ours, name in norms]
        return [rule for pair in pairs for rule in pair]

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        """Return the tensor mappings of attention in each layer."""
        there, here = "model.layers.{}.self_attn", "blocks.{}.mixer"
        parts = [f"{there}.{part}_proj" for part in (("qkv",) if self.fused_projections else "qkv")]
        stacked = TensorRule if self.fused_projections else self.stacked
        found = self._mixers(shape).get(shape.mixer_spec, MixerParts(normed=self.qk_norm))
        weighted = found.normed and self.qk_norm_kind in PARAMETRIC
        norms = zip("qk", self.qk_norms, strict=True) if weighted else ()
        biased = found.biased or self.bias
        apart = bool(self.gate_name)
        gates = linear_rules(
            f"{here}.output_gate",
            f"{there}.{self.gate_name}" if apart else parts[0],
            kind=TensorRule if apart else OutputGate,
            bias=biased and not apart,
        )
        return [
            *linear_rules(f"{here}.project", *parts, kind=stacked, bias=biased),
            *(gates if self.output_gate else ()),
            *linear_rules(f"{here}.out", f"{there}.o_proj", bias=found.out_biased),
            *(TensorRule(f"{here}.{x}_norm.weight", (f"{there}.{name}.weight",)) for x, name in norms),
            *([TensorRule(f"{here}.sinks", (f"{there}.sinks",))] if self.sinks else []),
        ]

    def feedforward_rules(self, shape: Shape, layer: str = LAYER_PLACEHOLDER) -> Sequence[TensorRule]:
        """Return the tensor mappings of the feed-forward of a layer, or of each."""
        there, here = f"model.layers.{layer}.{self.feedforward_name}", f"blocks.{layer}.feedforward"
        biased = "feedforward" in shape.bias
        first = (("gate_up",) if self.fused_gates else ("gate", "up")) if self.gated else ("up",)
        kind = StackedPair if len(first) == 2 else TensorRule
        learned = LEARNED[shape.feedforward]().state_dict() if shape.feedforward in LEARNED else ()
        return [
            *linear_rules(f"{here}.widen", *(f"{there}.{part}_proj" for part in first), kind=kind, bias=biased),
            *linear_rules(f"{here}.narrow", f"{there}.down_proj", bias=biased),
            *(TensorRule(f"{here}.activation.{name}", (f"{there}.act_fn.{name}",)) for name in learned),
        ]

    def _check_sizes(self, shape: Shape) -> None:
        """Raise a ValueError unless the family has the sizes, the feed-forward and the norms of a shape."""
        must = f"width must be a multiple of heads in a {self.model_type}, or transformers does not read it"
        came = f"got {shape.width} and {shape.heads}"
        divides = not self.heads_divide_width or shape.width % shape.heads == 0
        need(divides, must, came, "choose such sizes, or use save_pretrained")
        norms = shape.norm, shape.norm_position, shape.zero_centred_norm
        own = self.norm, self.norm_position, self.zero_centred
        need(
            (shape.feedforward in GATED) is self.gated and norms == own,
            f"a {self.model_type} requires {FEEDFORWARDS[self.gated]} feedforward, {self.norm} norms, norm_position "
            f"{self.norm_position} and zero_centred_norm={self.zero_centred}",
            f"got {shape.feedforward}, {', '.join(map(str, norms))}",
            "choose another family, or use save_pretrained",
        )

    def _given_scores(self, shape: Shape) -> dict[str, float | None]:
        """Return the options of the scores that the mixer of a shape has, those that the family can have."""
        given = catalog.parse(shape.mixer_spec.entries[0])[1].get("variant", {})
        written = {name: given.get(name, "none") for name in self.score_options}
        return {name: None if text == "none" else float(text) for name, text in written.items()}

    def _biased(self, config: Mapping[str, Any], key: str) -> bool:
        """Whether a config.json says that there are the biases of a key."""
        return key in self.optional_biases and bool(config[key])

    def _parts(self, config: Mapping[str, Any]) -> MixerParts:
        """Return what the mixers of a checkpoint have."""
        biased = self._biased(config, self.bias_key)
        out = self._biased(config, self.out_bias_key) if self.out_bias_key else biased and self.out_bias
        return MixerParts(biased, out, bool(config.get(self.qk_norm_key, self.qk_norm)))

    def _mixers(self, shape: Shape) -> dict[str, MixerParts]:
        """Return the mixers that the family can have with the scores of a shape, and what they have."""
        norms = (True, False) if self.qk_norm_key else (self.qk_norm,)
        choices = (True, False) if self.bias_key in self.optional_biases else (False,)
        parts = [
            MixerParts(biased, out, normed)
            for biased in choices
            for out in ((True, False) if self.out_bias_key else (biased and self.out_bias,))
            for normed in norms
        ]
        scores = self._given_scores(shape)
        return {self._mixer(shape.norm_eps, scores, each): each for each in parts}

    def _mixer(self, norm_eps: float | None, scores: Mapping[str, float | None], parts: MixerParts) -> str:
        """Return the mixer with these parts, and with what all mixers of the family have."""
        biased = parts.biased or self.bias
        options = ["variant.bias=true"] if biased else []
        options += [] if parts.out_biased is biased else [f"variant.out_bias={str(parts.out_biased).lower()}"]
        options += ["variant.qk_norm=true", f"variant.norm_eps={norm_eps}"] if parts.normed else []
        options += (
            [f"variant.qk_norm_kind={self.qk_norm_kind}"] if parts.normed and self.qk_norm_kind != "rms" else []
        )
        options += ["variant.qk_norm_after=true"] if parts.normed and self.qk_norm_after else []
        options += ["variant.qk_norm_across=true"] if self.qk_norm_across else []
        options += ["variant.qk_norm_zero_centred=true"] if parts.normed and self.zero_centred else []
        options += ["variant.sinks=true"] if self.sinks else []
        options += ["variant.output_gate=true"] if self.output_gate else []
        options += ["variant.gate_bias=false"] if self.gate_name and biased else []
        options += [f"variant.{name}={value}" for name, value in scores.items() if value is not None]
        return "softmax:" + ",".join(options) if options else "softmax"


def unusual_scale(scale: float, head_width: int) -> float | None:
    """Return a factor of scores; None: it is the usual one, 1 / sqrt(head_width)."""
    return None if scale == head_width**-0.5 else float(scale)
