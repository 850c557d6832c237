"""How symmetric heads are between places that are apart, as a finding tells it: by rows and columns in an image."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.finding import Chart, Estimate, Line, Picture
from ordinate.measures.telling import panel_of
from ordinate.measures.turning import Offset
from ordinate.measures.weighing import Weighed

SHOWN = 12
NAMES = ("row", "column")
TITLE = "Symmetry of pairs that are apart"


def estimates(weights: Weighed, width: int) -> list[Estimate]:
    """The symmetry of the median head between neighbours along each axis, and between the farthest looked at.

    Args:
        weights: what the weights tell.
        width: of the stream; chance gives 1 / width at each offset.
    """
    if weights.turned is None:
        return []
    found, middle = [], np.median(weights.turned, (0, 1))
    for own in _axes(weights.offsets):
        ahead = [place for place in own if max(weights.offsets[place]) > 0]
        for place in dict.fromkeys([*ahead[:1], *ahead[-1:]]):
            name = f"symmetry of a head at offset {written(weights.offsets[place])}, median"
            found.append(Estimate(name=name, value=float(middle[place]), null=1 / width))
    return found


def charts(weights: Weighed) -> list[Chart]:
    """The symmetry of heads by offset, a line for each axis."""
    if weights.turned is None:
        return []
    low, middle, high = np.percentile(weights.turned, [10, 50, 90], axis=(0, 1))
    axes, lines = _axes(weights.offsets), []
    for axis, own in enumerate(axes):
        name = "middle 80 % of heads" if len(axes) == 1 else f"{NAMES[axis]}s, middle 80 % of heads"
        across = tuple(float(weights.offsets[place][axis]) for place in own)
        ends = {"low": tuple(low[own].tolist()), "high": tuple(high[own].tolist())}
        lines.append(Line(name=name, x=across, y=tuple(middle[own].tolist()), **ends))
    caption = "" if len(axes) == 1 else "Above 0 a key stands above the query, or to its left."
    return [Chart(title=TITLE, x="offset", y="symmetry", lines=tuple(lines), caption=caption)]


def pictures(weights: Weighed) -> list[Picture]:
    """The symmetry of heads by rows and columns where there are two axes: the query in the middle, keys around it."""
    if weights.turned is None or len(weights.offsets[0]) == 1:
        return []
    reach = max(max(offset) for offset in weights.offsets)
    maps, heads = _maps(weights.turned, 2 * reach + 1), weights.turned.std(-1)
    first = np.argsort(-heads, axis=None, kind="stable")[:SHOWN]
    panels = [panel_of("median of all heads", np.median(maps, (0, 1)))]
    for place in first:
        layer, head = (int(x) for x in np.unravel_index(place, heads.shape))
        panels.append(panel_of(f"layer {layer + 1}, head {head + 1}", maps[layer, head]))
    caption = (
        f"The query stands in the middle, and a key so many rows below it and columns to its right. Of {heads.size} "
        f"heads {len(first)}, those first whose symmetry differs most from offset to offset."
    )
    return [
        Picture(title=f"{TITLE}, by rows and columns", x="columns to the right", y="rows below",
                panels=tuple(panels), caption=caption, first=-reach, middle=0.0)
    ]  # fmt: skip


def written(offset: Offset) -> str:
    """An offset in words: a number in a text, rows and columns in an image."""
    if len(offset) == 1:
        return str(offset[0])
    named = [
        f"{step} {name}{'' if abs(step) == 1 else 's'}" for step, name in zip(offset, NAMES, strict=True) if step
    ]
    return " and ".join(named) or "0"


def _axes(offsets: tuple[Offset, ...]) -> list[list[int]]:
    """For each axis the places of those offsets that lie on it, in order."""
    count = len(offsets[0])
    return [
        [place for place, offset in enumerate(offsets) if not any(offset[:axis] + offset[axis + 1 :])]
        for axis in range(count)
    ]


def _maps(turned: Float[ndarray, "layers h offsets"], side: int) -> Float[ndarray, "layers h {side} {side}"]:
    """Where keys stand beside the query: an offset counts back, from the query to a key above it and to its left."""
    return turned.reshape(*turned.shape[:2], side, side)[..., ::-1, ::-1]
