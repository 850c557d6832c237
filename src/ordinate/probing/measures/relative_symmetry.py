"""Symmetry of W_q R W_k^T by relative offset, as estimates, charts and heatmaps (rows and columns in an image)."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Chart, Estimate, HeatmapGrid, Line
from ordinate.probing.measures.formatting import heatmap_of
from ordinate.probing.measures.qk_symmetry import QKSymmetry
from ordinate.probing.measures.relative_rotation import Offset

MAX_HEADS = 12
AXIS_NAMES = ("row", "column")
TITLE = "Symmetry of W_q R W_k^T by relative offset"


def symmetry_estimates(weights: QKSymmetry, width: int) -> list[Estimate]:
    """Symmetry of the median head at the smallest and the largest measured offset along each axis.

    Args:
        weights: symmetry of each head, from its weights.
        width: dimensions of the residual stream; the value expected by chance is 1 / width at each offset.
    """
    if weights.symmetry_by_offset is None:
        return []
    found, middle = [], np.median(weights.symmetry_by_offset, (0, 1))
    for own in _axes(weights.offsets):
        ahead = [place for place in own if max(weights.offsets[place]) > 0]
        for place in dict.fromkeys([*ahead[:1], *ahead[-1:]]):
            name = f"symmetry at offset {format_offset(weights.offsets[place])}, median head"
            found.append(Estimate(name=name, value=float(middle[place]), null=1 / width))
    return found


def symmetry_charts(weights: QKSymmetry) -> list[Chart]:
    """Symmetry of heads by offset, one line per axis."""
    if weights.symmetry_by_offset is None:
        return []
    low, middle, high = np.percentile(weights.symmetry_by_offset, [10, 50, 90], axis=(0, 1))
    axes, lines = _axes(weights.offsets), []
    for axis, own in enumerate(axes):
        name = "middle 80 % of heads" if len(axes) == 1 else f"{AXIS_NAMES[axis]}s, middle 80 % of heads"
        across = tuple(float(weights.offsets[place][axis]) for place in own)
        ends = {"low": tuple(low[own].tolist()), "high": tuple(high[own].tolist())}
        lines.append(Line(name=name, x=across, y=tuple(middle[own].tolist()), **ends))
    caption = (
        ""
        if len(axes) == 1
        else "Offset = query - key: at positive offsets the key is above the query, or to its left."
    )
    return [Chart(title=TITLE, x="offset", y="symmetry", lines=tuple(lines), caption=caption)]


def symmetry_heatmaps(weights: QKSymmetry) -> list[HeatmapGrid]:
    """Symmetry of heads as a heatmap over row and column offsets, for images: the query is in the centre."""
    if weights.symmetry_by_offset is None or len(weights.offsets[0]) == 1:
        return []
    reach = max(max(offset) for offset in weights.offsets)
    maps, heads = _maps(weights.symmetry_by_offset, 2 * reach + 1), weights.symmetry_by_offset.std(-1)
    first = np.argsort(-heads, axis=None, kind="stable")[:MAX_HEADS]
    panels = [heatmap_of("median of all heads", np.median(maps, (0, 1)))]
    for place in first:
        layer, head = (int(x) for x in np.unravel_index(place, heads.shape))
        panels.append(heatmap_of(f"layer {layer + 1}, head {head + 1}", maps[layer, head]))
    caption = (
        f"The query is in the centre; axes: rows of the key below it and columns to its right. {len(first)} of "
        f"{heads.size} heads, sorted by the standard deviation of symmetry over offsets."
    )
    return [
        HeatmapGrid(title=f"{TITLE}, by rows and columns", x="columns to the right", y="rows below",
                panels=tuple(panels), caption=caption, first=-reach, middle=0.0)
    ]  # fmt: skip


def format_offset(offset: Offset) -> str:
    """Format an offset: a number in a text, rows and columns in an image."""
    if len(offset) == 1:
        return str(offset[0])
    named = [
        f"{step} {name}{'' if abs(step) == 1 else 's'}" for step, name in zip(offset, AXIS_NAMES, strict=True) if step
    ]
    return " and ".join(named) or "0"


def _axes(offsets: tuple[Offset, ...]) -> list[list[int]]:
    """For each axis, the indices of the offsets along it, in order."""
    count = len(offsets[0])
    return [
        [place for place, offset in enumerate(offsets) if not any(offset[:axis] + offset[axis + 1 :])]
        for axis in range(count)
    ]


def _maps(turned: Float[ndarray, "layers h offsets"], side: int) -> Float[ndarray, "layers h {side} {side}"]:
    """Heatmaps of key positions around the query.

    Offsets are query - key, so that positive ones are above and to the left: both axes are flipped.
    """
    return turned.reshape(*turned.shape[:2], side, side)[..., ::-1, ::-1]
