"""Base classes of BART-like encoder-decoders: with positions that are learned, and with sinusoids."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from torch import Tensor

from ordinate.models.block import NormPosition
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedQKV, TensorRule, Weight, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.counted_rows import CountedRows
from ordinate.pretrained.encoder_decoder_like import (
    EncoderDecoderLike,
    need_encoder_decoder,
    special_tokens,
    special_tokens_config,
)
from ordinate.pretrained.stored_sinusoids import are_sinusoids

MIXER = "softmax:variant.bias=true"
LEARNED = "learned"
# all sines before all cosines, not rescaled
SINUSOIDS = "sinusoidal:form=concatenated,scale=1.0"
TABLE = "embed_positions.weight"
LOGIT_BIAS = "final_logits_bias"
SIDES = ("encoder", "decoder")


class SingleRow(TensorRule):
    """A vector stored as a matrix with one row in the checkpoint."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][0]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor[None]]


class BartLike(EncoderDecoderLike):
    """BART-like encoder-decoders: the original Transformer with biases and LayerNorm, and with a bias of the logits.

    Must: `model_type`, `generation_class`, `defaults`, `scheme`, `schemes` and `position_rules`.
    May: `norm_position`, `embedding_norm`, `has_logit_bias`, `vocabularies` with `vocabulary_config`.
    """

    prefix = "model."
    ignored_suffixes = ("encoder.version", "decoder.version")
    generation_class: ClassVar[str]
    """The transformers class with a head."""
    norm_position: ClassVar[NormPosition] = "post"
    """Where a layer has its norms; with `pre`, encoder and decoder end with one."""
    embedding_norm: ClassVar[bool] = False
    """Whether embeddings are normalised, with positions."""
    has_logit_bias: ClassVar[bool] = True
    """Whether its logits may have a bias."""
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50_265,
        "max_position_embeddings": 1024,
        "d_model": 1024,
        **{f"{side}_layers": 12 for side in SIDES},
        **{f"{side}_ffn_dim": 4096 for side in SIDES},
        **{f"{side}_attention_heads": 16 for side in SIDES},
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Take a model without a bias of its logits, as a BartModel, for one with zeros, as transformers does."""
        return {**super().complete_config(config, names), "biased": self.has_logit_bias and LOGIT_BIAS in names}

    @abstractmethod
    def scheme(self, config: Mapping[str, Any]) -> str:
        """Return the scheme spec of encoder and decoder."""

    @abstractmethod
    def schemes(self, shape: Shape) -> tuple[str, ...]:
        """Return the schemes that a model of this width and these special tokens may have."""

    @abstractmethod
    def position_rules(self, shape: Shape, side: str) -> list[TensorRule]:
        """Return the tensor mapping of the position table of encoder or decoder, if it is stored."""

    def vocabularies(self, config: Mapping[str, Any]) -> tuple[int, int | None]:
        """Return the vocabulary, and that of the source unless both sides have one table."""
        # without ties, each side has the table of its own
        return config["vocab_size"], None if config["tie_word_embeddings"] else config["vocab_size"]

    def vocabulary_config(self, shape: EncoderDecoderShape) -> dict[str, Any]:
        """Return the config.json keys of the vocabularies."""
        return {"vocab_size": shape.vocabulary}

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        # nothing is tied to a shared table then
        return (*self.ignored_suffixes, *(() if shape.tie_embeddings else ("shared.weight",)))

    def copies(self, shape: Shape) -> tuple[str, ...]:
        shared = cast(EncoderDecoderShape, shape).source_vocabulary is None
        return (*super().copies(shape), *(f"model.{side}.embed_tokens.weight" for side in (SIDES if shared else ())))

    def architecture(self, shape: Shape) -> str:
        return self.generation_class

    def shape(self, config: Mapping[str, Any]) -> EncoderDecoderShape:
        vocabulary, source = self.vocabularies(config)
        return EncoderDecoderShape(
            vocabulary=vocabulary,
            source_vocabulary=source,
            width=config["d_model"],
            layers=config["decoder_layers"],
            source_layers=config["encoder_layers"],
            heads=config["decoder_attention_heads"],
            source_heads=config["encoder_attention_heads"],
            source_hidden=config["encoder_ffn_dim"],
            scheme=self.scheme(config),
            mixer=MIXER,
            cross_mixer=MIXER,
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_position=self.norm_position,
            feedforward=activation_kind(config, "activation_function"),
            hidden=config["decoder_ffn_dim"],
            bias=("norm", "feedforward"),
            embedding_scale=config["d_model"] ** 0.5 if config["scale_embedding"] else 1.0,
            embedding_norm=self.embedding_norm,
            logit_bias=config["biased"],
            tie_embeddings=config["tie_word_embeddings"],
            **special_tokens(config, vocabulary),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixers = dict.fromkeys(("mixer", "source_mixer", "cross_mixer"), MIXER)
        known = self.schemes(shape)
        scheme = str(shape.scheme_spec) if shape.scheme_spec in known else known[0]
        parts = {"norm_position": self.norm_position, "embedding_norm": self.embedding_norm}
        parts |= {} if self.has_logit_bias else {"logit_bias": False}
        full = need_encoder_decoder(self, shape, **mixers, **parts, scheme=scheme, source_scheme=scheme)
        sides = {
            "encoder": {
                "layers": full.source_layers,
                "attention_heads": full.source_heads,
                "ffn_dim": full.source_hidden,
            },
            "decoder": {"layers": shape.layers, "attention_heads": shape.heads, "ffn_dim": shape.hidden_width},
        }
        return {
            **self.vocabulary_config(full),
            "d_model": shape.width,
            **{f"{side}_{name}": size for side, sizes in sides.items() for name, size in sizes.items()},
            "max_position_embeddings": shape.max_length,
            "activation_function": activation_name(shape.feedforward),
            "scale_embedding": full.embedding_scale != 1,
            "tie_word_embeddings": shape.tie_embeddings,
            # transformers assumes one otherwise
            "forced_eos_token_id": None,
            **special_tokens_config(full),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        separate = isinstance(shape, EncoderDecoderShape) and shape.source_vocabulary is not None
        table = "model.decoder.embed_tokens.weight" if separate else "model.shared.weight"
        rules = [TensorRule("tokens.weight", (table,))]
        if cast(EncoderDecoderShape, shape).logit_bias:
            rules.append(SingleRow("logit_bias", (LOGIT_BIAS,)))
        if separate:
            rules.append(TensorRule("source_tokens.weight", ("model.encoder.embed_tokens.weight",)))
        if not shape.tie_embeddings:
            rules.append(TensorRule("head.weight", ("lm_head.weight",)))
        for side in SIDES:
            rules += [*self.position_rules(shape, side), *self.layer_rules(side)]
        return rules

    def layer_rules(self, side: str) -> list[TensorRule]:
        """Return the tensor mappings of the layers and norms of encoder or decoder."""
        top, there, here = f"model.{side}", f"model.{side}.layers.{{}}", f"{side}.blocks.{{}}"
        names = {"mixer": "self_attn"} | ({"cross": "encoder_attn"} if side == "decoder" else {})
        rules = linear_rules(f"{side}.embedding_norm", f"{top}.layernorm_embedding", bias=True)
        rules = rules if self.embedding_norm else []
        if self.norm_position == "pre":
            rules += linear_rules(f"{side}.norm", f"{top}.layer_norm", bias=True)
        for ours, theirs in names.items():
            parts = [f"{there}.{theirs}.{part}_proj" for part in "qkv"]
            rules += linear_rules(f"{here}.{ours}.project", *parts, kind=StackedQKV, bias=True)
            rules += linear_rules(f"{here}.{ours}.out", f"{there}.{theirs}.out_proj", bias=True)
            rules += linear_rules(f"{here}.{ours}_norm", f"{there}.{theirs}_layer_norm", bias=True)
        return [
            *rules,
            *linear_rules(f"{here}.feedforward.widen", f"{there}.fc1", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.fc2", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.final_layer_norm", bias=True),
        ]


class LearnedBartLike(BartLike):
    """Those with learned positions, whose first two rows are not used."""

    embedding_norm = True

    def scheme(self, config: Mapping[str, Any]) -> str:
        return LEARNED

    def schemes(self, shape: Shape) -> tuple[str, ...]:
        return (LEARNED,)

    def position_rules(self, shape: Shape, side: str) -> list[TensorRule]:
        return [CountedRows(f"{side}.schemes.0.table", (f"model.{side}.{TABLE}",), 1)]


class SinusoidalBartLike(BartLike):
    """Those with sinusoids; tables of other numbers that are stored, or of sinusoids in 16 bits, are learned ones."""

    # see `refined`
    ignored_suffixes = (*BartLike.ignored_suffixes, TABLE)

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Take position tables that are stored, as transformers does."""
        return {**super().complete_config(config, names), "stored": any(name.endswith(TABLE) for name in names)}

    def refined(self, shape: Shape, tensors: Mapping[str, Tensor]) -> Shape:
        # those of 16 bits, for example, are not the sinusoids that are computed otherwise
        tables = [tensors[name] for name in tensors if name.endswith(TABLE)]
        stored = not all(are_sinusoids(table, shape.max_length, shape.width) for table in tables)
        return shape if stored else replace(shape, scheme=SINUSOIDS)

    def scheme(self, config: Mapping[str, Any]) -> str:
        return LEARNED if config["stored"] else SINUSOIDS

    def schemes(self, shape: Shape) -> tuple[str, ...]:
        return SINUSOIDS, LEARNED

    def position_rules(self, shape: Shape, side: str) -> list[TensorRule]:
        stored = shape.scheme_spec == LEARNED
        return [TensorRule(f"{side}.schemes.0.table", (f"model.{side}.{TABLE}",))] if stored else []
