"""Heatmaps: matrices as palette PNG images in data URLs."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ordinate.core.finding import HeatmapGrid

# colour-blind safe and printable: a sequential map (dark to light) and a diverging one (about white)
_SEQUENTIAL = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
_DIVERGING = ((5, 80, 142), (103, 169, 207), (247, 247, 247), (241, 163, 64), (153, 71, 4))
COLOUR_STEPS = 256

Colour = tuple[int, int, int]
Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class ColourScale:
    """A colour scale.

    Args:
        low: the value of the first colour.
        high: the value of the last colour.
        colours: from low to high.
    """

    low: float
    high: float
    colours: tuple[Colour, ...]

    @classmethod
    def of(cls, picture: HeatmapGrid) -> "ColourScale":
        """Return one scale for all panels of a picture, so that they can be compared."""
        numbers = [number for panel in picture.panels for row in panel.values for number in row]
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        # a minimum below one colour step is rounding noise: the scale starts at 0
        low = 0.0 if 0 < low < high / COLOUR_STEPS else low
        if picture.middle is None:
            return cls(low, high if high > low else low + 1.0, palette(_SEQUENTIAL))
        reach = max(abs(high - picture.middle), abs(low - picture.middle)) or 1.0
        return cls(picture.middle - reach, picture.middle + reach, palette(_DIVERGING))

    def step(self, number: float) -> int:
        """Index of the colour of a number."""
        return round((COLOUR_STEPS - 1) * min(1.0, max(0.0, (number - self.low) / (self.high - self.low))))


def palette(anchors: Sequence[Colour]) -> tuple[Colour, ...]:
    """Interpolate linearly between anchor colours, in 256 steps."""
    found = []
    for step in range(COLOUR_STEPS):
        position = step / (COLOUR_STEPS - 1) * (len(anchors) - 1)
        one = min(int(position), len(anchors) - 2)
        share = position - one
        mixed = [round(a + (b - a) * share) for a, b in zip(anchors[one], anchors[one + 1], strict=True)]
        found.append((mixed[0], mixed[1], mixed[2]))
    return tuple(found)


def heatmap_image(values: Matrix, scale: ColourScale) -> str:
    """Return a matrix as the data URL of an image with one pixel for each number."""
    rows = [bytes(scale.step(number) for number in row) for row in values]
    return _data_url(rows, scale.colours)


def colour_bar(scale: ColourScale) -> str:
    """Return the colours from low to high as an image of one row."""
    return _data_url([bytes(range(COLOUR_STEPS))], scale.colours)


def _data_url(rows: Sequence[bytes], colours: Sequence[Colour]) -> str:
    """Encode rows of palette indices as PNG (RFC 2083) in a data URL."""
    # width, height, 8 bits a pixel, colour type 3 (palette), default compression and filter, not interlaced
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    # each row starts with its filter type, 0: none
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = (
        (b"IHDR", head),
        (b"PLTE", bytes(x for colour in colours for x in colour)),
        (b"IDAT", body),
        (b"IEND", b""),
    )
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
