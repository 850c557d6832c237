"""Base class of Cohere-like decoders."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedPair, StackedQKV, TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_GATES, activation_kind, activation_name
from ordinate.pretrained.decoder_like import DecoderLike


class CohereLike(DecoderLike):
    """Cohere-like decoders: attention and feed-forward are parallel, after a shared LayerNorm; the logits are scaled.

    Must: `schemes` and `scheme_config`, in a pair, to read and to write.
    May: `windows`; `qk_norm_key`.
    """

    # transformers has no other heads
    heads = ()
    prefix = "model."
    usual: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 256_000,
        "hidden_size": 8192,
        "intermediate_size": 22_528,
        "logit_scale": 0.0625,
        "num_hidden_layers": 40,
        "num_attention_heads": 64,
        "num_key_value_heads": None,
        "head_dim": None,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 0,
        "rope_parameters": None,
        "attention_bias": False,
        "tie_word_embeddings": True,
    }
    """Default values that Cohere-like families share."""
    qk_norm_key: ClassVar[str] = ""
    """The key that says whether queries and keys have a LayerNorm for each head, in families that have it."""

    @abstractmethod
    def schemes(self, config: Mapping[str, Any], head_width: int) -> str:
        """Return the `scheme` of a shape."""

    @abstractmethod
    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        """Return the config.json keys of the scheme and of the windows."""

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        """Return the sliding window of each layer; a single entry applies to all."""
        return (None,)

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        head_width, eps = config["head_dim"] or width // heads, config["layer_norm_eps"]
        normed = bool(self.qk_norm_key and config[self.qk_norm_key])
        return Shape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config["num_key_value_heads"] or heads,
            head_width=head_width,
            scheme=self.schemes(config, head_width),
            mixer=_mixer(eps, biased=bool(config["attention_bias"]), normed=normed),
            sliding_windows=self.windows(config),
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_eps=eps,
            norm_position="shared",
            feedforward=activation_kind(config, "hidden_act", HF_GATES),
            hidden=config["intermediate_size"],
            bias=(),
            tie_embeddings=config["tie_word_embeddings"],
            logit_scale=config["logit_scale"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixers, width = self._mixers(shape), shape.bindable_sizes["head_width"]
        need(
            shape.mixer_spec in mixers and shape.norm_position == "shared" and shape.feedforward in GATED,
            f"a {self.model_type} requires the mixer {' or '.join(mixers)}, norm_position shared, and a gated "
            "feedforward",
            f"got {shape.mixer_spec}, {shape.norm_position}, {shape.feedforward}",
            "use save_pretrained instead",
        )
        biased, normed = mixers[shape.mixer_spec]
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden_width,
            "logit_scale": shape.logit_scale,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads if shape.kv_heads is None else shape.kv_heads,
            "head_dim": width,
            "hidden_act": activation_name(shape.feedforward, HF_GATES),
            "max_position_embeddings": shape.max_length,
            "layer_norm_eps": shape.norm_eps,
            "attention_bias": biased,
            **({self.qk_norm_key: normed} if self.qk_norm_key else {}),
            **self.scheme_config(shape, width),
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        there, here = "model.layers.{}", "blocks.{}"
        biased, normed = self._mixers(shape).get(shape.mixer_spec, (False, False))
        parts = [f"{there}.self_attn.{part}_proj" for part in "qkv"]
        gates = [f"{there}.mlp.{part}_proj" for part in ("gate", "up")]
        rules = [
            TensorRule("tokens.weight", ("model.embed_tokens.weight",)),
            TensorRule("norm.weight", ("model.norm.weight",)),
            TensorRule(f"{here}.mixer_norm.weight", (f"{there}.input_layernorm.weight",)),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=biased),
            *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.o_proj", bias=biased),
            *linear_rules(f"{here}.feedforward.widen", *gates, kind=StackedPair, bias=False),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=False),
        ]
        for x in "qk" if normed else "":
            rules.append(TensorRule(f"{here}.mixer.{x}_norm.weight", (f"{there}.self_attn.{x}_norm.weight",)))
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

    def _mixers(self, shape: Shape) -> dict[str, tuple[bool, bool]]:
        """Return the mixers that the family can have, and whether they have biases and norms of queries and keys."""
        norms = (True, False) if self.qk_norm_key else (False,)
        parts = [(biased, normed) for biased in (True, False) for normed in norms]
        return {_mixer(shape.norm_eps, biased=biased, normed=normed): (biased, normed) for biased, normed in parts}


def _mixer(norm_eps: float | None, *, biased: bool, normed: bool) -> str:
    """Return the mixer, with biases and with norms of queries and keys if set."""
    options = ["variant.bias=true"] if biased else []
    if normed:
        options += ["variant.qk_norm=true", "variant.qk_norm_kind=layer_per_head", f"variant.norm_eps={norm_eps}"]
    return "softmax:" + ",".join(options) if options else "softmax"
