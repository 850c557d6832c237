"""Hyperparameters of an encoder-decoder."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, cast

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.member_spec import MemberSpec
from ordinate.mixers._projections import AttentionMixer
from ordinate.mixers._spec import MixerForm, MixerSpec
from ordinate.models.mixer_layers import check_kv_heads, takes_kv_heads
from ordinate.models.next_token_rules import NO_RULES, NextTokenRules
from ordinate.models.scheme_location import SchemeLocation
from ordinate.models.shape import Shape
from ordinate.models.shape_checks import check_no_decoder_options
from ordinate.models.text_head import check_plain_head
from ordinate.schemes._spec import LayerSchemes, SchemeForm, SchemeSpec

CrossAxis = Literal["shared", "scaled"]
CROSS_AXES: tuple[CrossAxis, ...] = ("shared", "scaled")
# fields of `Shape` that the encoder may have of its own, as source_...
SOURCE_FIELDS = ("layers", "heads", "kv_heads", "hidden", "scheme", "mixer", "sliding_windows")


@dataclass(frozen=True)
class EncoderDecoderShape(Shape):
    """Hyperparameters of an encoder-decoder: those of `Shape`, which are the decoder's, and these.

    Args:
        source_vocabulary: vocabulary size of the source; None: encoder and decoder share one token table.
        source_layers: layers of the encoder; None: as many as the decoder has.
        source_heads: query heads of the encoder; None: as many as the decoder has.
        source_kv_heads: key and value heads of the encoder; None: as many as the decoder has.
        source_hidden: hidden width of the encoder's feed-forward; None: the decoder's.
        source_scheme: positional schemes of the encoder; None: the decoder's.
        source_mixer: token mixers of the encoder; None: the decoder's.
        source_sliding_windows: sliding windows of the encoder [tokens]; None: the decoder's.
        cross_mixer: cross-attention mixer, options inline.
        cross_scheme: positional schemes of cross-attention, as in `scheme`; `none`: no positions.
        cross_axis: position axis of cross-attention. `shared`: target token i is at i, source token j at j.
            `scaled`: source token j is at j * ratio.
        cross_ratio: target tokens per source token; None with a scaled axis: target length over source length, so
            that both sequences end at the same position. The target length must then be known before generation.
        logit_bias: whether the output head has a bias.
        start: decoder start token; None: none, which generation needs.
        end: end-of-sequence token, or several; (): none.
        padding: padding token; None: none. Masks come from the geometry, so the same id may also be a regular token.
        rules: rules of generation.

    Raises:
        ValueError: besides those of `Shape`, an option without effect, or special tokens outside of the vocabulary.
    """

    SPECS: ClassVar[Mapping[str, type[MemberSpec]]] = {
        **Shape.SPECS,
        **dict.fromkeys(("source_scheme", "cross_scheme"), SchemeSpec),
        **dict.fromkeys(("source_mixer", "cross_mixer"), MixerSpec),
    }

    source_vocabulary: int | None = None
    source_layers: int | None = None
    source_heads: int | None = None
    source_kv_heads: int | None = None
    source_hidden: int | None = None
    source_scheme: SchemeForm | None = None
    source_mixer: MixerForm | None = None
    source_sliding_windows: tuple[int | None, ...] | None = None
    cross_mixer: MixerForm = "softmax"
    cross_scheme: SchemeForm = "none"
    cross_axis: CrossAxis = "shared"
    cross_ratio: float | None = None
    logit_bias: bool = False
    start: int | None = 0
    end: int | tuple[int, ...] = 1
    padding: int | None = 0
    rules: NextTokenRules = NO_RULES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_no_decoder_options(self)
        need_known("cross_axis", self.cross_axis, CROSS_AXES)
        for name in ("source_vocabulary", "cross_ratio"):
            if getattr(self, name) is not None:
                need_positive(name, getattr(self, name))
        need(
            self.cross_axis == "shared" or self.cross_scheme != "none",
            "cross_axis has an effect only with a cross_scheme",
            "got cross_axis='scaled' with cross_scheme='none'",
            "give a cross_scheme, or leave cross_axis out",
        )
        need(
            self.cross_ratio is None or self.cross_axis == "scaled",
            "cross_ratio has an effect only with a scaled axis",
            f"got cross_ratio={self.cross_ratio} with a shared one",
            "give cross_axis='scaled'",
        )
        source = self.source_kv_heads
        check_kv_heads("source_kv_heads", source, self.source_heads or self.heads, self._source_takes_kv_heads)
        self._check_generation()
        need(self.blocks == "plain", "an encoder-decoder needs plain blocks", f"got {self.blocks!r}", "leave it out")
        bare = self.mixer_only_layers
        must = "the layers of an encoder-decoder have a feed-forward"
        need(not bare, must, f"got mixer_only_layers={bare}", "leave it out")
        shared = self.shared_layers
        must = "the layers of an encoder-decoder have parameters of their own"
        need(not shared, must, f"got shared_layers={shared}", "leave it out")
        must, came = (
            "the token table of an encoder-decoder has its width",
            f"got embedding_width={self.embedding_width}",
        )
        need(self.table_width == self.width, must, came, "leave it out")
        need("head" not in self.bias, "the head bias is set by logit_bias", "got bias='head'", "give logit_bias=True")

    def _check_generation(self) -> None:
        """Check the special tokens and the rules of generation."""
        for token in (self.start, *self.end_tokens, self.padding):
            known = f"special tokens must lie in 0 to {self.vocabulary - 1}"
            inside = token is None or 0 <= token < self.vocabulary
            need(inside, known, f"got {token}", "change start, end or padding")
        self.rules.check(self.vocabulary, self.end_tokens)

    @property
    def start_token(self) -> int:
        """Decoder start token.

        Raises:
            ValueError: the model has none.
        """
        return _named("decoder start token", "start", self.start)

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """End-of-sequence tokens."""
        return self.end if isinstance(self.end, tuple) else (self.end,)

    @property
    def end_token(self) -> int:
        """End-of-sequence token of texts that the model reads: the first one.

        Raises:
            ValueError: the model has none.
        """
        return _named("end-of-sequence token", "end", next(iter(self.end_tokens), None))

    @property
    def fill_token(self) -> int:
        """Token that fills a batch after the end of shorter texts: the padding token; without it, the end token."""
        return next((token for token in (self.padding, *self.end_tokens) if token is not None), 0)

    @property
    def encoder_shape(self) -> Shape:
        """Hyperparameters of the encoder."""
        named = {name: getattr(self, f"source_{name}") for name in SOURCE_FIELDS}
        own = {name: value for name, value in named.items() if value is not None}
        return self._half(**{"kv_heads": self._kv_heads(self._source_mixer)} | own)

    @property
    def scheme_locations(self) -> dict[str, SchemeLocation]:
        """Where the model has positional schemes: in encoder, decoder and cross-attention."""
        return {
            "encoder": SchemeLocation("source_scheme", "encoder.schemes", self.encoder_shape),
            "decoder": SchemeLocation(
                "scheme", "decoder.schemes", self._half(kv_heads=self._kv_heads(self.mixer_spec))
            ),
            "cross": SchemeLocation("cross_scheme", "cross_schemes", self._cross_shape, is_cross_attention=True),
        }

    @property
    def branches(self) -> int:
        """Number of residual branches of all decoder layers together."""
        return 3 * self.layers

    def takes_kv_heads(self, count: int) -> bool:
        """Return whether a mixer of decoder, cross-attention or encoder would have this number as the model's."""
        of_source = self.source_kv_heads is None and self._source_takes_kv_heads(count)
        return super().takes_kv_heads(count) or takes_kv_heads(self._cross_mixer, count) or of_source

    def with_defaults(self) -> "EncoderDecoderShape":
        """Return a copy with all defaults filled in."""
        source = self.encoder_shape.with_defaults()
        named = {f"source_{name}": getattr(source, name) for name in SOURCE_FIELDS}
        full = super().with_defaults()
        # a width that is usual for the heads of one side may not be for those of the other
        return replace(full, head_width=source.head_width or full.head_width, **named)

    def make_cross_attention(self, layer: int) -> AttentionMixer:
        """Build the cross-attention mixer of a decoder layer."""
        mixer = self._mixer(self._cross_mixer, layer)
        mixer.check_cross_attention()
        return cast(AttentionMixer, mixer)

    def make_cross_attention_schemes(self) -> LayerSchemes:
        """Build the schemes of cross-attention, with the scheme index of each layer."""
        recipe = self.scheme_locations["cross"].shape.make_schemes()
        for scheme in recipe.schemes:
            early = sorted({"remap_positions", "embed"} & set(scheme.hooks))
            need(
                not early,
                "cross_scheme must act inside attention",
                f"{type(scheme).__name__} uses {', '.join(early)}, before the first layer",
                "give it as scheme or source_scheme, and another as cross_scheme",
            )
        return recipe

    def _check_head(self) -> None:
        need(
            self.head == "next_token" and not self.labels,
            "an encoder-decoder predicts the next token",
            f"got head={self.head!r} with {len(self.labels)} labels",
            "leave both out",
        )
        check_plain_head("an encoder-decoder", self.head_transform, self.head_activation, self.head_bias)

    @property
    def _cross_mixer(self) -> MixerSpec:
        return MixerSpec.of(self.cross_mixer, self.bindable_sizes)

    @property
    def _source_mixer(self) -> MixerSpec:
        given = self.mixer if self.source_mixer is None else self.source_mixer
        return MixerSpec.of(given, self.bindable_sizes)

    def _source_takes_kv_heads(self, count: int) -> bool:
        return takes_kv_heads(self._source_mixer, count)

    def _kv_heads(self, mixers: MixerSpec) -> int | None:
        """Key and value heads of these mixers; None if they have none of their own."""
        return self.kv_heads if self.kv_heads is not None and takes_kv_heads(mixers, self.kv_heads) else None

    @property
    def _cross_shape(self) -> Shape:
        """Hyperparameters of the decoder as the schemes of cross-attention see them."""
        mixers = self._cross_mixer
        return self._half(scheme=self.cross_scheme, mixer=mixers, kv_heads=self._kv_heads(mixers))

    def _half(self, **changes: Any) -> Shape:
        """Hyperparameters of the decoder alone, with these changes."""
        # special tokens are those of the whole model
        own = {field.name: getattr(self, field.name) for field in fields(Shape) if field.name != "padding"}
        return Shape(**own | changes)


def _named(what: str, field: str, token: int | None) -> int:
    """Return a special token, or raise a ValueError if there is none."""
    if token is None:
        raise ValueError(f"this needs the {what} of the model; it has none; give {field} to its shape")
    return token
