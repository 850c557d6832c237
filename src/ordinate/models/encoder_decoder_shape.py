"""The sizes and choices that make an encoder-decoder."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

from ordinate.attention_mixer import AttentionMixer
from ordinate.checks import need, need_known, need_positive
from ordinate.models.shape import Shape
from ordinate.models.side import Side
from ordinate.recipe import Recipe

Axis = Literal["shared", "scaled"]
AXES: tuple[Axis, ...] = ("shared", "scaled")


@dataclass(frozen=True)
class EncoderDecoderShape(Shape):
    """The sizes and choices that make an encoder-decoder: those of a `Shape`, which are the decoder's, and these.

    Args:
        source_vocabulary: different tokens of the source; None: one table of tokens serves both.
        source_layers: blocks of the encoder; None: as many as the decoder has.
        source_scheme: the encoder's positional schemes; None: the decoder's.
        source_mixer: the encoder's token mixers; None: the decoder's.
        source_windows: the encoder's windows [tokens]; None: the decoder's.
        cross_mixer: how target tokens look at the source, options inline.
        cross_scheme: what cross-attention knows of positions, a line of schemes; `none`: nothing.
        cross_axis: on which axis it does. `shared`: token i of the target stands at i, token j of the source at j.
            `scaled`: token j of the source stands at j * ratio.
        cross_ratio: tokens of the target for each of the source; None with a scaled axis: the target's length over
            the source's, so that both end at one place. Then the length must be known before anything is written.
        embedding_scale: multiplies token vectors; the square root of the width in the first transformer.
        logit_scale: multiplies what the logits are read from; T5 has width^(-1/2).
        logit_bias: whether each token's logit has a number added.
        start: the token that a translation begins after.
        end: the token that ends one.
        padding: the token that fills up what is shorter than its batch; geometry tells, so it may have a meaning too.
        never: tokens that are never written.

    Raises:
        ValueError: besides those of `Shape`, an option without effect, tokens that the vocabulary has not.
    """

    source_vocabulary: int | None = None
    source_layers: int | None = None
    source_scheme: str | None = None
    source_mixer: str | None = None
    source_windows: tuple[int | None, ...] | None = None
    cross_mixer: str = "softmax"
    cross_scheme: str = "none"
    cross_axis: Axis = "shared"
    cross_ratio: float | None = None
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_bias: bool = False
    start: int = 0
    end: int = 1
    padding: int = 0
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        need_known("cross_axis", self.cross_axis, AXES)
        for name in ("source_vocabulary", "embedding_scale", "logit_scale", "cross_ratio"):
            if getattr(self, name) is not None:
                need_positive(name, getattr(self, name))
        need(
            self.cross_axis == "shared" or self.cross_scheme != "none",
            "an axis is for a scheme to count along",
            "got cross_axis='scaled' with cross_scheme='none'",
            "name a cross_scheme, or leave the axis out",
        )
        need(
            self.cross_ratio is None or self.cross_axis == "scaled",
            "a ratio scales the source's axis",
            f"got cross_ratio={self.cross_ratio} with a shared one",
            "give cross_axis='scaled'",
        )
        for token in (self.start, self.end, self.padding, *self.never):
            known = f"tokens lie in 0 to {self.vocabulary - 1}"
            need(0 <= token < self.vocabulary, known, f"got {token}", "give start, end, padding and never that do")
        need(self.blocks == "plain", "an encoder-decoder has plain blocks", f"got {self.blocks!r}", "leave it out")
        need("head" not in self.bias, "its head has a logit_bias", "got a bias at the head", "give logit_bias=True")

    @property
    def source(self) -> Shape:
        """The encoder's sizes and choices."""
        named = {name: getattr(self, f"source_{name}") for name in ("layers", "scheme", "mixer", "windows")}
        return self._half(**{name: value for name, value in named.items() if value is not None})

    @property
    def sides(self) -> dict[str, Side]:
        """Where the model has positional schemes: in either half, and where the decoder looks at the source."""
        return {
            "encoder": Side("source_scheme", "encoder.schemes", self.source),
            "decoder": Side("scheme", "decoder.schemes", self._half()),
            "cross": Side("cross_scheme", "cross_schemes", self._half(scheme=self.cross_scheme), across=True),
        }

    @property
    def branches(self) -> int:
        """How many branches a layer of the decoder adds."""
        return 3

    def full(self) -> "EncoderDecoderShape":
        """The same, with everything said that may be left open."""
        source = self.source.full()
        named = {f"source_{name}": getattr(source, name) for name in ("layers", "scheme", "mixer", "windows")}
        return replace(super().full(), **named)

    def make_cross(self, layer: int) -> AttentionMixer:
        """How a layer of the decoder looks at the source."""
        mixer = self._mixer(self.cross_mixer, layer)
        mixer.check_crosses()
        return cast(AttentionMixer, mixer)

    def make_cross_schemes(self) -> Recipe:
        """The schemes of cross-attention and the layers that each serves."""
        recipe = self.sides["cross"].shape.make_schemes()
        for scheme in recipe.schemes:
            early = sorted({"place", "embed"} & set(scheme.hooks))
            need(
                not early,
                "cross-attention takes schemes that act inside it",
                f"{type(scheme).__name__} uses {', '.join(early)}, before the first layer",
                "name it in scheme or source_scheme, and another in cross_scheme",
            )
        return recipe

    def _half(self, **changes: Any) -> Shape:
        """The sizes and choices of the decoder alone, with these changes."""
        own = {field.name: getattr(self, field.name) for field in fields(Shape)}
        return Shape(**own | changes)
