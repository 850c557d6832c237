"""Plot data of a scheme: its embeddings, biases and q.k products for identical tokens, as tables and curves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry

PLOT_SIZES: dict[str, Any] = {
    "width": 32,
    "layers": 1,
    "heads": 4,
    "kv_heads": 4,
    "head_width": 32,
    "max_length": 64,
    "scale": 1.0,
    "dropout": 0.0,
}
"""Model sizes for which plotted schemes are built, and assumed of those that were built without one."""
# length of the text, side of the image [tokens]
TOKENS, SIDE = 24, 7


@dataclass(frozen=True)
class HeatmapData:
    """Matrix to plot as a heatmap; NaN at masked entries.

    Args:
        title: quantity shown.
        rows: label of the row axis.
        columns: label of the column axis.
        numbers: the matrix, row by row.
    """

    title: str
    rows: str
    columns: str
    numbers: list[list[float]]


@dataclass(frozen=True)
class LinePlotData:
    """One or several curves over one axis.

    Args:
        title: quantity shown.
        along: label of the horizontal axis.
        lines: values of each curve, for 0, 1, 2, ...
    """

    title: str
    along: str
    lines: dict[str, list[float]]


def scheme_plots(scheme: Any) -> list[HeatmapData | LinePlotData]:
    """Compute what each hook of a scheme does to identical tokens of a short text or small image.

    Learned parameters have the values that they have.

    Args:
        scheme: any scheme. (A module below its base class, which shows itself in notebooks, cannot name its type.)

    Raises:
        ValueError: a scheme that does not support these tokens.
    """
    axes, tokens = scheme.axes[0], min(TOKENS, scheme.max_length or TOKENS)
    own = next(scheme.parameters(), torch.empty(0))
    with torch.no_grad(), torch.device(own.device):
        where = Geometry.causal(tokens) if axes == 1 else Geometry.grid(*([SIDE, SIDE] if axes == 2 else [3, 5, 5]))
        at = scheme.at(where)
        return [*_moved(scheme, where, at), *_marked(scheme, at), *_related(scheme, at)]


def _size(scheme: Any, name: str) -> int:
    return getattr(scheme, name, None) or PLOT_SIZES[name]


def _moved(scheme: Any, where: Geometry, at: Any) -> Iterator[HeatmapData | LinePlotData]:
    if "remap_positions" in scheme.hooks:
        lines = {"before": where.q_pos[0, :, 0].tolist(), "after": at.where.q_pos[0, :, 0].tolist()}
        yield LinePlotData("positions before and after remapping", "token", lines)


def _marked(scheme: Any, at: Any) -> Iterator[HeatmapData | LinePlotData]:
    if "embed" not in scheme.hooks:
        return
    tokens = at.where.shape[0]
    marks = at.embed(torch.zeros(1, tokens, _size(scheme, "width") - scheme.appended_width))[0]
    yield HeatmapData("position embedding", "position", "channel", marks.tolist())
    likeness = torch.nn.functional.cosine_similarity(marks[_centre(at)], marks, dim=-1)
    yield _seen("cosine similarity of position embeddings", at, {"": likeness})


def _related(scheme: Any, at: Any) -> Iterator[HeatmapData | LinePlotData]:
    """Scores and outputs of attention when all queries and keys are the same vector."""
    heads, width = _size(scheme, "heads"), _size(scheme, "head_width")
    ones = torch.ones(1, heads, at.where.shape[0], width) / width**0.5
    q, k = at.encode(ones, ones).pair
    hooks = set(scheme.hooks)
    if hooks & {"encode_query", "encode_key", "score"}:
        own = scheme.score(q, k, at.where)
        yield from _pairs("q.k of equal vectors", at, q @ k.mT if own is None else own)
    if at.bias is not None:
        yield from _pairs("bias added to the scores", at, at.bias)
    content = scheme.content_bias(q, k, at.where)
    if content is not None:
        yield from _pairs("content-dependent bias for equal vectors", at, content)
    weights = at.where.visible[:, None].float().expand(1, heads, -1, -1)
    carried = scheme.value_bias(weights / weights.sum(-1, keepdim=True), at.where)
    if carried is not None:
        yield HeatmapData(
            "added to the output of uniform attention, head 0", "query", "channel", carried[0, 0].tolist()
        )


def _pairs(title: str, at: Any, scores: Tensor) -> Iterator[HeatmapData | LinePlotData]:
    scores = scores[0].masked_fill(~at.where.visible[0], float("nan"))
    if at.where.q_pos.shape[-1] == 1:
        yield HeatmapData(f"{title}, head 0", "query", "key", scores[0].tolist())
    shown = {f"head {head}": scores[head, _centre(at)] for head in range(min(len(scores), PLOT_SIZES["heads"]))}
    alike = all(line.allclose(shown["head 0"], equal_nan=True) for line in shown.values())
    yield _seen(title, at, {"all heads": shown["head 0"]} if alike else shown)


def _seen(title: str, at: Any, lines: dict[str, Tensor]) -> HeatmapData | LinePlotData:
    """One query's row: curves over the offset for a text, a heatmap of the middle query for an image."""
    centre, pos = _centre(at), at.where.q_pos[0]
    if pos.shape[-1] == 1:
        return LinePlotData(
            title, "offset [tokens]", {name: line[: centre + 1].flip(0).tolist() for name, line in lines.items()}
        )
    name, line = next(iter(lines.items()))
    side = int(pos[:, -1].max()) + 1
    # for a video, the frame that contains the query
    frame = line.reshape(-1, side, side)[int(pos[centre, 0]) if pos.shape[-1] == 3 else 0]
    title = f"{title}, from the middle query" + (f", {name}" if len(lines) > 1 else "")
    return HeatmapData(title, "row", "column", frame.tolist())


def _centre(at: Any) -> int:
    tokens = at.where.shape[0]
    return tokens - 1 if at.where.q_pos.shape[-1] == 1 else tokens // 2
