"""Base class of T5-like encoder-decoders."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.feedforward import GATED, FeedForwardKind
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedPair, StackedQKV, TensorRule, linear_rules, need_settings
from ordinate.pretrained.activation_names import HF_ACTIVATIONS, HF_GATES, activation_kind, activation_name
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

    Must: `model_type`, `generation_class` and `encoder_class`.
    May: `defaults`, `scales` and `table_per_layer`.
    """

    encoder_class: ClassVar[str]
    """The transformers class of an encoder alone, which another family reads."""
    table_per_layer: ClassVar[bool] = False
    """Whether each layer has a table of positions of its own."""
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

    @classmethod
    def read_as(cls, config: Mapping[str, Any]) -> str:
        named = config.get("architectures")
        alone = isinstance(named, list) and named[:1] == [cls.encoder_class]
        return f"{cls.model_type}_encoder" if alone else cls.model_type

    def scales(self, config: Mapping[str, Any]) -> bool:
        """Return whether the input of the head is divided by the square root of the width."""
        return bool(config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False))

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
        return EncoderDecoderShape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_decoder_layers"],
            source_layers=config["num_layers"],
            heads=config["num_heads"],
            head_width=config["d_kv"],
            scheme=t5_scheme(config, per_layer=self.table_per_layer),
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
        return {
            **stack_config(self.model_type, shape, per_layer=self.table_per_layer),
            "num_layers": full.source_layers,
            "num_decoder_layers": shape.layers,
            # transformers derives the scaling of the logits from this key
            "tie_word_embeddings": full.logit_scale != 1,
            **special_tokens_config(full),
        }

    def copies(self, shape: Shape) -> tuple[str, ...]:
        return (*super().copies(shape), *COPIES)

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = [TensorRule("tokens.weight", (TABLE,))]
        for side in ("encoder", "decoder"):
            rules += stack_rules(shape, side, f"{side}.", per_layer=self.table_per_layer)
        cross = "decoder.blocks.{}.cross"
        rules += attention_rules(cross, "decoder.block.{}.layer.1.EncDecAttention")
        rules.append(TensorRule(f"{cross}_norm.weight", ("decoder.block.{}.layer.1.layer_norm.weight",)))
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", (HEAD,))]


def t5_scheme(config: Mapping[str, Any], *, per_layer: bool) -> str:
    """Return the scheme spec.

    Raises:
        ValueError: buckets that leave no logarithmic one.
    """
    buckets, farthest = (config[f"relative_attention_{name}"] for name in ("num_buckets", "max_distance"))
    need(
        buckets >= 4 and farthest > buckets // 2,
        "relative_attention_num_buckets must be at least 4, and half of it below relative_attention_max_distance",
        f"got {buckets} and {farthest}",
        "load another checkpoint",
    )
    return f"t5:buckets={buckets},max_distance={farthest}{',per_layer=true' if per_layer else ''}"


def stack_config(model_type: str, shape: Shape, *, per_layer: bool) -> dict[str, Any]:
    """Return the config.json keys that an encoder and a decoder share."""
    name, options = catalog.parse(shape.scheme_spec)
    need(
        name == "t5" and (options.get("per_layer") == "true") == per_layer,
        f"a {model_type} requires the scheme t5{', with a table per_layer' if per_layer else ', with one table'}",
        f"got {shape.scheme_spec!r}",
        "use save_pretrained instead",
    )
    return {
        "vocab_size": shape.vocabulary,
        "d_model": shape.width,
        "d_kv": shape.bindable_sizes["head_width"],
        "d_ff": shape.hidden_width,
        "num_heads": shape.heads,
        "relative_attention_num_buckets": int(options.get("buckets", 32)),
        "relative_attention_max_distance": int(options.get("max_distance", 128)),
        "layer_norm_epsilon": shape.norm_eps,
        "feed_forward_proj": activation_name(shape.feedforward, FEEDFORWARD_KINDS),
    }


def stack_rules(shape: Shape, side: str, ours: str, *, per_layer: bool) -> list[TensorRule]:
    """Return the tensor mappings of the layers of an encoder or a decoder, without cross-attention.

    Args:
        shape: hyperparameters.
        side: `encoder` or `decoder`, as checkpoints name it.
        ours: what precedes the names of its tensors here.
        per_layer: whether each layer has a table of positions, or the first one.
    """
    there, here, last = f"{side}.block.{{}}.layer", f"{ours}blocks.{{}}", 1 if side == "encoder" else 2
    inner, layer = f"{there}.{last}.DenseReluDense", "{}" if per_layer else "0"
    wide = [f"{inner}.wi_0", f"{inner}.wi_1"] if shape.feedforward in GATED else [f"{inner}.wi"]
    table = f"{side}.block.{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
    return [
        TensorRule(f"{ours}schemes.{layer}.table", (table,)),
        TensorRule(f"{ours}norm.weight", (f"{side}.final_layer_norm.weight",)),
        TensorRule(f"{here}.mixer_norm.weight", (f"{there}.0.layer_norm.weight",)),
        TensorRule(f"{here}.feedforward_norm.weight", (f"{there}.{last}.layer_norm.weight",)),
        *attention_rules(f"{here}.mixer", f"{there}.0.SelfAttention"),
        *linear_rules(
            f"{here}.feedforward.widen", *wide, kind=StackedPair if len(wide) == 2 else TensorRule, bias=False
        ),
        *linear_rules(f"{here}.feedforward.narrow", f"{inner}.wo", bias=False),
    ]


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
