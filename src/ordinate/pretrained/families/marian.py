"""Marian."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from torch import Tensor

from ordinate.core.checks import need
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import (
    StackedQKV,
    TensorRule,
    Weight,
    activation_kind,
    activation_name,
    linear_rules,
)
from ordinate.pretrained.encoder_decoder_like import (
    EncoderDecoderLike,
    need_encoder_decoder,
    special_tokens,
    special_tokens_config,
)
from ordinate.pretrained.stored_sinusoids import are_sinusoids

MIXER = "softmax:variant.bias=true"
# all sines before all cosines, not rescaled
SCHEME = "sinusoidal:form=concatenated,scale=1.0"
# tables of other numbers, or of sinusoids in 16 bits
STORED = "learned"
TABLE = "embed_positions.weight"


class SingleRow(TensorRule):
    """A vector stored as a matrix with one row in the checkpoint."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][0]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor[None]]


class Marian(EncoderDecoderLike):
    """Marian (OPUS-MT): the original Transformer with sinusoidal position embeddings and post-norm.

    Source: Junczys-Dowmunt et al. 2018, Marian, https://arxiv.org/abs/1804.00344.
    """

    model_type = "marian"
    prefix = "model."
    # sinusoidal tables, see `refined`
    ignored_suffixes = (TABLE,)
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 58_101,
        "max_position_embeddings": 1024,
        "d_model": 1024,
        **{f"{side}_layers": 12 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 4096 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 16 for side in ("encoder", "decoder")},
        "activation_function": "gelu",
        "scale_embedding": False,
        "share_encoder_decoder_embeddings": True,
        "decoder_vocab_size": None,
        "tie_word_embeddings": True,
        "pad_token_id": 58100,
        "eos_token_id": 0,
        "decoder_start_token_id": 58100,
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    }

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        # nothing is tied to a shared table then
        return (*self.ignored_suffixes, *(() if shape.tie_embeddings else ("shared.weight",)))

    def copies(self, shape: Shape) -> tuple[str, ...]:
        shared = cast(EncoderDecoderShape, shape).source_vocabulary is None
        sides = ("encoder", "decoder") if shared else ()
        return (*super().copies(shape), *(f"model.{side}.embed_tokens.weight" for side in sides))

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Take position tables that are stored, as transformers does."""
        return {**config, "stored": any(name.endswith(TABLE) for name in names)}

    def refined(self, shape: Shape, tensors: Mapping[str, Tensor]) -> Shape:
        # those of 16 bits, for example, are not the sinusoids that are computed otherwise
        tables = [tensors[name] for name in tensors if name.endswith(TABLE)]
        stored = not all(are_sinusoids(table, shape.max_length, shape.width) for table in tables)
        return shape if stored else replace(shape, scheme=SCHEME)

    def architecture(self, shape: Shape) -> str:
        return "MarianMTModel"

    def shape(self, config: Mapping[str, Any]) -> EncoderDecoderShape:
        shared, tied = config["share_encoder_decoder_embeddings"], config["tie_word_embeddings"]
        source, width = config["vocab_size"], config["d_model"]
        target = config["decoder_vocab_size"] or source
        need(
            tied or not shared or source == target,
            "embeddings that are shared, but not tied (tie_word_embeddings), must have equal vocabularies",
            f"got vocab_size={source}, decoder_vocab_size={target}",
            "load another checkpoint",
        )
        vocabulary = source if shared else target
        return EncoderDecoderShape(
            vocabulary=vocabulary,
            # without ties, each side has the table of its own
            source_vocabulary=None if shared and tied else source,
            width=width,
            layers=config["decoder_layers"],
            source_layers=config["encoder_layers"],
            heads=config["decoder_attention_heads"],
            source_heads=config["encoder_attention_heads"],
            source_hidden=config["encoder_ffn_dim"],
            scheme=STORED if config["stored"] else SCHEME,
            mixer=MIXER,
            cross_mixer=MIXER,
            max_length=config["max_position_embeddings"],
            norm="layer",
            norm_position="post",
            feedforward=activation_kind(config, "activation_function"),
            hidden=config["decoder_ffn_dim"],
            bias=("norm", "feedforward"),
            embedding_scale=width**0.5 if config["scale_embedding"] else 1.0,
            logit_bias=True,
            tie_embeddings=tied,
            **special_tokens(config, vocabulary),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixers = dict.fromkeys(("mixer", "source_mixer", "cross_mixer"), MIXER)
        scheme = STORED if shape.scheme_spec == STORED else SCHEME
        full = need_encoder_decoder(
            self, shape, **mixers, scheme=scheme, source_scheme=scheme, norm_position="post", logit_bias=True
        )
        sides = {
            "encoder": {
                "layers": full.source_layers,
                "attention_heads": full.source_heads,
                "ffn_dim": full.source_hidden,
            },
            "decoder": {"layers": shape.layers, "attention_heads": shape.heads, "ffn_dim": shape.hidden_width},
        }
        return {
            "vocab_size": full.source_vocabulary or shape.vocabulary,
            "decoder_vocab_size": shape.vocabulary,
            "share_encoder_decoder_embeddings": full.source_vocabulary is None,
            "d_model": shape.width,
            **{f"{side}_{name}": size for side, sizes in sides.items() for name, size in sizes.items()},
            "max_position_embeddings": shape.max_length,
            "activation_function": activation_name(shape.feedforward),
            "scale_embedding": full.embedding_scale != 1,
            "tie_word_embeddings": shape.tie_embeddings,
            # older versions of transformers assume one
            "forced_eos_token_id": None,
            **special_tokens_config(full),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        separate = isinstance(shape, EncoderDecoderShape) and shape.source_vocabulary is not None
        table = "model.decoder.embed_tokens.weight" if separate else "model.shared.weight"
        rules = [TensorRule("tokens.weight", (table,)), SingleRow("logit_bias", ("final_logits_bias",))]
        if separate:
            rules.append(TensorRule("source_tokens.weight", ("model.encoder.embed_tokens.weight",)))
        if not shape.tie_embeddings:
            rules.append(TensorRule("head.weight", ("lm_head.weight",)))
        for side in ("encoder", "decoder"):
            if shape.scheme_spec == STORED:
                rules.append(TensorRule(f"{side}.schemes.0.table", (f"model.{side}.{TABLE}",)))
            there, here = f"model.{side}.layers.{{}}", f"{side}.blocks.{{}}"
            names = {"mixer": "self_attn"} | ({"cross": "encoder_attn"} if side == "decoder" else {})
            for ours, theirs in names.items():
                parts = [f"{there}.{theirs}.{part}_proj" for part in "qkv"]
                rules += linear_rules(f"{here}.{ours}.project", *parts, kind=StackedQKV, bias=True)
                rules += linear_rules(f"{here}.{ours}.out", f"{there}.{theirs}.out_proj", bias=True)
                rules += linear_rules(f"{here}.{ours}_norm", f"{there}.{theirs}_layer_norm", bias=True)
            rules += [
                *linear_rules(f"{here}.feedforward.widen", f"{there}.fc1", bias=True),
                *linear_rules(f"{here}.feedforward.narrow", f"{there}.fc2", bias=True),
                *linear_rules(f"{here}.feedforward_norm", f"{there}.final_layer_norm", bias=True),
            ]
        return rules
