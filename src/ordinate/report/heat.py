"""Matrices as small images that stand inside a page."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ordinate.finding import Picture

# told apart by people of every kind of colour vision, and in print: dark to light, or two colours about white
ONE_WAY = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
TWO_WAYS = ((5, 80, 142), (103, 169, 207), (247, 247, 247), (241, 163, 64), (153, 71, 4))
STEPS = 256

Colour = tuple[int, int, int]
Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Scale:
    """Which number has which colour.

    Args:
        low: the number of the first colour.
        high: the number of the last.
        colours: from low to high.
    """

    low: float
    high: float
    colours: tuple[Colour, ...]

    @classmethod
    def of(cls, picture: Picture) -> "Scale":
        """One scale for all panels of a picture, so that they can be compared."""
        numbers = [number for panel in picture.panels for row in panel.values for number in row]
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        # next to nothing is shown as nothing
        low = 0.0 if 0 < low < high / STEPS else low
        if picture.middle is None:
            return cls(low, high if high > low else low + 1.0, palette(ONE_WAY))
        reach = max(abs(high - picture.middle), abs(low - picture.middle)) or 1.0
        return cls(picture.middle - reach, picture.middle + reach, palette(TWO_WAYS))

    def step(self, number: float) -> int:
        """The place of its colour."""
        return round((STEPS - 1) * min(1.0, max(0.0, (number - self.low) / (self.high - self.low))))


def palette(anchors: Sequence[Colour]) -> tuple[Colour, ...]:
    """Colours between these, as many as a byte tells apart."""
    found = []
    for step in range(STEPS):
        place = step / (STEPS - 1) * (len(anchors) - 1)
        one, share = min(int(place), len(anchors) - 2), place - min(int(place), len(anchors) - 2)
        mixed = [round(a + (b - a) * share) for a, b in zip(anchors[one], anchors[one + 1], strict=True)]
        found.append((mixed[0], mixed[1], mixed[2]))
    return tuple(found)


def image(values: Matrix, scale: Scale) -> str:
    """A matrix as the address of an image, a pixel for each number."""
    rows = [bytes(scale.step(number) for number in row) for row in values]
    return _address(rows, scale.colours)


def ramp(scale: Scale) -> str:
    """The colours from low to high as an image of one row."""
    return _address([bytes(range(STEPS))], scale.colours)


def _address(rows: Sequence[bytes], colours: Sequence[Colour]) -> str:
    """A PNG with a palette (RFC 2083) as a data address."""
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
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
