"""Base class of Llama-like decoders that may clip queries, keys and values."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.llama_like import LlamaLike

CLIP = "variant.clip_qkv="


class ClippedLike(LlamaLike):
    """Llama-like decoders whose queries, keys and values are clipped in some models.

    Must: as `LlamaLike`, with `clip_qkv` among `defaults`.
    May: `clip_options`.
    """

    clip_options: ClassVar[tuple[str, ...]] = ()
    """The options of the mixer beside the limit, in models that clip."""

    def shape(self, config: Mapping[str, Any]) -> Shape:
        shape, limit = super().shape(config), config["clip_qkv"]
        if limit is None:
            return shape
        need(limit > 0, "clip_qkv must be above zero", f"got {shown(limit)}", "correct it, or leave it out")
        options = ",".join([f"{CLIP}{limit}", *self.clip_options])
        return replace(shape, mixer=f"{shape.mixer}{',' if ':' in str(shape.mixer) else ':'}{options}")

    def config(self, shape: Shape) -> dict[str, Any]:
        plain, limit = self.unclipped(shape)
        return super().config(plain) | {"clip_qkv": limit}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return super().rules(self.unclipped(shape)[0])

    def unclipped(self, shape: Shape) -> tuple[Shape, float | None]:
        """Return the shape without clipping, and the limit; None: there was none."""
        name, _, given = shape.mixer_spec.partition(":")
        options = given.split(",")
        limits = [option.removeprefix(CLIP) for option in options if option.startswith(CLIP)]
        others = set(self.clip_options)
        if len(shape.mixer_spec.entries) > 1 or not limits or not others <= set(options):
            return shape, None
        rest = ",".join(option for option in options if not option.startswith(CLIP) and option not in others)
        return replace(shape, mixer=f"{name}:{rest}" if rest else name), float(limits[0])
