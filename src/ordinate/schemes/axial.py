"""Axial RoPE: rotary position embedding for images and video."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Literal, get_args

import torch

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.shapes import Keys, Positions, Queries
from ordinate.core.tensors import in_float64
from ordinate.ops.axes import HEO, Spacing, axis_frequencies
from ordinate.ops.rotate import Angles, Rotation
from ordinate.schemes._scheme import Encoder, Scheme


class Axial(Scheme):
    """Axial RoPE: rotate separate channel pairs of queries and keys by row, column and, with three axes, depth.

        angle(p, a, m) = p_a * w[a, m],   w[a, m] = theta^(-m/P),   m = 0 .. P - 1     [radians]

    Each axis a has P channel pairs of its own, so q.k depends on the relative position along each axis. Remaining
    channels are not rotated.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, at least 2 for each axis.
        spacing: `lang` as above; `round_robin` distributes one list of frequencies over the axes in turn (Pixtral);
            `pixel` and `pixel_log` are pi times numbers from 1 to max_frequency/2, linearly or geometrically spaced,
            for positions normalised to -1 .. 1 over `grid_size` tokens (rotary-embedding-torch, timm); `centres` is
            2 pi theta^(-m/P), for the centres of patches in an image whose edges are at -1 and 1 (DINOv3).
        theta: base of the wavelengths of `lang`, `round_robin` and `centres`; None: 10 000.
        max_frequency: maximum frequency F of the `pixel` forms; None: 10 [half turns per half side].
        grid_size: length of each side, or of all sides, for the `pixel` forms and `centres` [tokens].
        order: `blocks` keeps the pairs of an axis together, `alternating` interleaves the axes.
        layout: which channels form a pair: `half` pairs m with m + half of the rotated channels, `interleaved` pairs
            2m with 2m + 1, `half_per_axis` is `half` within the channels of each axis.
        axis_width: channels of each axis, 2P; None: the largest number that fits all axes.
    Raises:
        ValueError: an axis without channels, or an option that has no effect.
    Source: Heo et al. 2024, https://arxiv.org/abs/2403.13298 (its axial form), other forms from public code.
    Departs: angles in float64; positions are arguments, and may be any real numbers.
    """

    axes = (2, 3)
    shift_invariant = True
    citation = HEO

    def __init__(
        self,
        *,
        head_width: int,
        spacing: Spacing = "lang",
        theta: float | None = None,
        max_frequency: float | None = None,
        grid_size: int | tuple[int, ...] | None = None,
        order: Literal["blocks", "alternating"] = "blocks",
        layout: Literal["half", "interleaved", "half_per_axis"] = "half",
        axis_width: int | None = None,
    ) -> None:
        super().__init__()
        need_known("spacing of axial", spacing, get_args(Spacing))
        pixel = spacing.startswith("pixel")
        normalised = pixel or spacing == "centres"
        for name, value, used in (
            ("theta", theta, not pixel),
            ("max_frequency", max_frequency, pixel),
            ("grid_size", grid_size, normalised),
        ):
            came = f"got {value} with spacing={spacing!r}, where it has no effect"
            need(value is None or used, f"{name} belongs to another spacing", came, "leave it out")
        given = not normalised or grid_size is not None
        need(given, f"spacing={spacing!r} needs the length of a side", "got no grid_size", "give grid_size")
        sides = (grid_size,) if isinstance(grid_size, int) else grid_size or ()
        fewest = 2 if pixel else 1
        sound = len(sides) < 4 and all(side >= fewest for side in sides)
        came = f"got grid_size={grid_size}"
        need(sound, f"up to 3 sides have {fewest} tokens or more", came, "give one length, or one for each axis")
        separate = layout != "half_per_axis" or order == "blocks"
        need(separate, "half_per_axis keeps the axes separate", f"got order={order!r}", "give order='blocks'")
        for name, value in (("theta", theta), ("max_frequency", max_frequency)):
            need_positive(name, 1 if value is None else value)
        self.head_width, self.axis_width, self.sides = head_width, axis_width, sides
        self.axes = (len(sides),) if len(sides) > 1 else self.axes
        self.spacing: Spacing = spacing
        self.theta, self.max_frequency = theta or 10_000.0, max_frequency or 10.0
        self.order, self.layout = order, layout
        self.pairs(min(self.axes))

    def pairs(self, axes: int) -> int:
        """Return the number of channel pairs of each axis."""
        width = 2 * (self.head_width // (2 * axes)) if self.axis_width is None else self.axis_width
        fits = width >= 2 and width % 2 == 0 and width * axes <= self.head_width
        asked = "" if self.axis_width is None else f" and axis_width {self.axis_width}"
        need(
            fits,
            f"each of {axes} axes needs an even number of channels, at least 2",
            f"got head_width {self.head_width}{asked}",
            f"choose a head width of {axes * max(width, 2)} or more, or an even axis_width that fits",
        )
        return width // 2

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless each axis has channels."""
        super().check_positions(pos)
        self.pairs(pos.shape[-1])

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        return self.make_encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        return self.make_encoders(pos)[1](k)

    def make_encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Return one rotation for queries and keys, composed of one per axis for `half_per_axis`."""
        angles, axes = self.angles(pos), pos.shape[-1]
        if self.layout != "half_per_axis":
            rotation = Rotation.by(angles, self.layout)
            return rotation, rotation
        each = partial(_turn_each, [Rotation.by(part, "half") for part in angles.chunk(axes, -1)])
        return each, each

    def angles(self, pos: Positions) -> Angles:
        """Return the rotation angle of each channel pair at each position [radians]."""
        axes = pos.shape[-1]
        table = axis_frequencies(
            self.spacing, axes=axes, pairs=self.pairs(axes), theta=self.theta, max_frequency=self.max_frequency
        )
        place = in_float64(pos)
        if self.sides:
            came = f"got {len(self.sides)} for {axes} axes"
            need(
                len(self.sides) in (1, axes),
                "grid_size is the length of each side, or of all",
                came,
                "give one for each",
            )
            sides = numbers_beside(place, self.sides, torch.float64)
            place = (2 * place + 1) / sides - 1 if self.spacing == "centres" else place * 2 / (sides - 1) - 1
        angles = place[..., None] * numbers_beside(place, table, torch.float64)
        return (angles if self.order == "blocks" else angles.mT).flatten(-2)


def _turn_each(rotations: Sequence[Rotation], x: Queries) -> Queries:
    """Apply each rotation to its own consecutive channels; the remaining channels are unchanged."""
    *parts, rest = x.tensor_split(tuple(accumulate(2 * turn.cos.shape[-1] for turn in rotations)), -1)
    return torch.cat([*(turn(part) for turn, part in zip(rotations, parts, strict=True)), rest], -1)
