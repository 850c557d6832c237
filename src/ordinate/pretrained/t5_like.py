"""Base class of T5-like encoder-decoders."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.feedforward import GATED, FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import (
    HF_ACTIVATIONS,
    HF_GATES,
    StackedPair,
    StackedQKV,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
    need_settings,
)
from ordinate.pretrained.encoder_decoder_like import (
    EncoderDecoderLike,
    need_encoder_decoder,
    special_tokens,
    special_tokens_config,
)

# T5 configs name no maximum length, and there is none
LENGTH = 512
MIXER = "softmax:variant.scale=1.0"
HEAD = "lm_head.weight"
TABLE, COPIES = "shared.weight", tuple(f"{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
FEEDFORWARD_KINDS: Mapping[str, FeedForwardKind] = {
    **HF_ACTIVATIONS,
    **{f"gated-{name}": kind for name, kind in HF_GATES.items()},
    # transformers reads gated-gelu as gelu_new, the tanh approximation
    "gated-gelu": "geglu_tanh",
}


class T5Like(EncoderDecoderLike):
    """T5-like encoder-decoders: bucketed relative position bias shared by all layers, unscaled scores, RMSNorm.

    There is no bias in cross-attention.

    Must: `model_type`, `generation_class` and `scales`.
    May: `defaults`.
    """

    generation_class: ClassVar[str]
    """The transformers class with a head."""
    prefix = ""
    # an unused relative-bias table in the cross-attention of old checkpoints
    ignored_suffixes = ("EncDecAttention.relative_attention_bias.weight",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 32_128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "relu",
        "num_decoder_layers": None,
        "decoder_start_token_id": None,
        "is_encoder_decoder": True,
        "use_cache": True,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }

    @abstractmethod
    def scales(self, config: Mapping[str, Any]) -> bool:
        """Return whether the input of the head is divided by the square root of the width."""

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide from the tensor names whether the head is tied: config.json may claim so wrongly."""
        depth = config["num_layers"] if config["num_decoder_layers"] is None else config["num_decoder_layers"]
        # a checkpoint may have the head only of all that are tied
        only = config.get("tie_word_embeddings") is not False and not {TABLE, *COPIES} & set(names)
        found = {"scale_decoder_outputs": self.scales(config), "tied": HEAD not in names or only}
        return {**config, **found, "num_decoder_layers": depth}

    def architecture(self, shape: Shape) -> str:
        return self.generation_class

    def shape(self, config: Mapping[str, Any]) -> EncoderDecoderShape:
        # other classes, of an encoder alone for example, are refused with their names, by their tensors. Without a
        # cache the setting has no effect; with one, cross-attention reads the keys of self-attention in transformers
        own = self.generation_class
        if (config.get("architectures") or [own])[0] == own and config["use_cache"]:
            need_settings(self, config, is_encoder_decoder=True)
        width = config["d_model"]
        buckets, farthest = (config[f"relative_attention_{name}"] for name in ("num_buckets", "max_distance"))
        need(
            buckets >= 4 and farthest > buckets // 2,
            "relative_attention_num_buckets must be at least 4, and half of it below relative_attention_max_distance",
            f"got {buckets} and {farthest}",
            "load another checkpoint",
        )
        return EncoderDecoderShape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_decoder_layers"],
            source_layers=config["num_layers"],
            heads=config["num_heads"],
            head_width=config["d_kv"],
            scheme=f"t5:buckets={buckets},max_distance={farthest}",
            mixer=MIXER,
            cross_mixer=MIXER,
            max_length=LENGTH,
            norm_eps=config["layer_norm_epsilon"],
            feedforward=feedforward_kind(config),
            hidden=config["d_ff"],
            bias=(),
            tie_embeddings=config["tied"],
            logit_scale=width**-0.5 if config["scale_decoder_outputs"] else 1.0,
            **special_tokens(config, config["vocab_size"]),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        full = need_encoder_decoder(
            self, shape, mixer=MIXER, source_mixer=MIXER, cross_mixer=MIXER, source_scheme=shape.scheme_spec, bias=()
        )
        name, options = catalog.parse(shape.scheme_spec)
        need(
            name == "t5",
            f"a {self.model_type} requires the scheme t5",
            f"got {shape.scheme_spec!r}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "d_model": shape.width,
            "d_kv": shape.bindable_sizes["head_width"],
            "d_ff": shape.hidden_width,
            "num_layers": full.source_layers,
            "num_decoder_layers": shape.layers,
            "num_heads": shape.heads,
            "relative_attention_num_buckets": int(options.get("buckets", 32)),
            "relative_attention_max_distance": int(options.get("max_distance", 128)),
            "layer_norm_epsilon": shape.norm_eps,
            "feed_forward_proj": activation_name(shape.feedforward, FEEDFORWARD_KINDS),
            # transformers derives the scaling of the logits from this key
            "tie_word_embeddings": full.logit_scale != 1,
            **special_tokens_config(full),
        }

    def copies(self, shape: Shape) -> tuple[str, ...]:
        return (*super().copies(shape), *COPIES)

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = [TensorRule("tokens.weight", (TABLE,))]
        for side, last in (("encoder", 1), ("decoder", 2)):
            there, here = f"{side}.block.{{}}.layer", f"{side}.blocks.{{}}"
            inner = f"{there}.{last}.DenseReluDense"
            wide = [f"{inner}.wi_0", f"{inner}.wi_1"] if shape.feedforward in GATED else [f"{inner}.wi"]
            table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            rules += [
                TensorRule(f"{side}.schemes.0.table", (table,)),
                TensorRule(f"{side}.norm.weight", (f"{side}.final_layer_norm.weight",)),
                TensorRule(f"{here}.mixer_norm.weight", (f"{there}.0.layer_norm.weight",)),
                TensorRule(f"{here}.feedforward_norm.weight", (f"{there}.{last}.layer_norm.weight",)),
                *attention_rules(f"{here}.mixer", f"{there}.0.SelfAttention"),
                *linear_rules(
                    f"{here}.feedforward.widen", *wide, kind=StackedPair if len(wide) == 2 else TensorRule, bias=False
                ),
                *linear_rules(f"{here}.feedforward.narrow", f"{inner}.wo", bias=False),
            ]
        cross = "decoder.blocks.{}.cross"
        rules += attention_rules(cross, "decoder.block.{}.layer.1.EncDecAttention")
        rules.append(TensorRule(f"{cross}_norm.weight", ("decoder.block.{}.layer.1.layer_norm.weight",)))
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", (HEAD,))]


def feedforward_kind(config: Mapping[str, Any]) -> FeedForwardKind:
    """Return the feed-forward kind; the keys into which transformers splits `feed_forward_proj` precede it."""
    if not {"dense_act_fn", "is_gated_act"} & config.keys():
        return activation_kind(config, "feed_forward_proj", FEEDFORWARD_KINDS)
    named = config["feed_forward_proj"]
    usual = "gelu_new" if named == "gated-gelu" else named.rpartition("-")[2]
    gates = bool(config.get("is_gated_act", named.startswith("gated-")))
    return activation_kind({"dense_act_fn": usual, **config}, "dense_act_fn", HF_GATES if gates else HF_ACTIVATIONS)


def attention_rules(here: str, there: str) -> list[TensorRule]:
    """Return the tensor mappings of an attention layer."""
    parts = [f"{there}.{part}" for part in "qkv"]
    return [
        *linear_rules(f"{here}.project", *parts, kind=StackedQKV, bias=False),
        *linear_rules(f"{here}.out", f"{there}.o", bias=False),
    ]
