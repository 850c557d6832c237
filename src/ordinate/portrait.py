"""What a scheme does, as tables and curves that it draws of itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.recipe import Recipe
from ordinate.scheme import Placed, Scheme

SIZES: dict[str, Any] = {
    "width": 32,
    "layers": 1,
    "heads": 4,
    "kv_heads": 4,
    "head_width": 32,
    "max_length": 64,
    "scale": 1.0,
    "dropout": 0.0,
}
"""The sizes of the model that a scheme is drawn in."""
TOKENS, SIDE = 24, 7


@dataclass(frozen=True)
class Table:
    """Numbers in rows and columns; NaN where there is nothing.

    Args:
        title: what the numbers are.
        rows: what a row stands for.
        columns: what a column stands for.
        numbers: the numbers.
    """

    title: str
    rows: str
    columns: str
    numbers: list[list[float]]


@dataclass(frozen=True)
class Curves:
    """Numbers along one axis, a line or several.

    Args:
        title: what the numbers are.
        along: what the axis is.
        lines: the numbers of each line, from 0 on.
    """

    title: str
    along: str
    lines: dict[str, list[float]]


def read(text: str) -> Scheme:
    """The scheme of the first layer of a line such as `rope+alibi`, in the sizes of a portrait."""
    entries = Recipe.entries(text)
    return Recipe.read(entries[0], SIZES).schemes[0]


def portrait(scheme: Scheme) -> list[Table | Curves]:
    """Each thing that a scheme does to tokens that are all alike, in a short text or a small image.

    Its trained numbers are those that it is born with.

    Args:
        scheme: built with `SIZES`.
    """
    axes = scheme.axes[0]
    where = Geometry.causal(TOKENS) if axes == 1 else Geometry.grid(*([SIDE, SIDE] if axes == 2 else [3, 5, 5]))
    with torch.no_grad():
        at = scheme.at(where)
        return [*_moved(scheme, where, at), *_marked(scheme, at), *_related(scheme, at)]


def _moved(scheme: Scheme, where: Geometry, at: Placed) -> Iterator[Table | Curves]:
    if "place" in scheme.hooks:
        lines = {"before": where.q_pos[0, :, 0].tolist(), "after": at.where.q_pos[0, :, 0].tolist()}
        yield Curves("where tokens are said to stand", "token", lines)


def _marked(scheme: Scheme, at: Placed) -> Iterator[Table | Curves]:
    if "embed" not in scheme.hooks:
        return
    tokens = at.where.shape[0]
    marks = at.embed(torch.zeros(1, tokens, SIZES["width"] - scheme.claims))[0]
    yield Table("added to the tokens", "position", "column of the model", marks.tolist())
    likeness = torch.nn.functional.cosine_similarity(marks[_centre(at)], marks, dim=-1)
    yield _seen("likeness of the marks of two positions (cosine)", at, {"": likeness})


def _related(scheme: Scheme, at: Placed) -> Iterator[Table | Curves]:
    """What each query makes of each key, for one vector in all places."""
    heads, width = SIZES["heads"], SIZES["head_width"]
    ones = torch.ones(1, heads, at.where.shape[0], width) / width**0.5
    q, k = at.encode(ones, ones)
    hooks = set(scheme.hooks)
    if hooks & {"encode_query", "encode_key", "score"}:
        own = scheme.score(q, k, at.where)
        yield from _pairs("q.k of equal vectors", at, q @ k.mT if own is None else own)
    if at.bias is not None:
        yield from _pairs("added to the scores", at, at.bias)
    content = scheme.content_bias(q, k, at.where)
    if content is not None:
        yield from _pairs("added to the scores of equal vectors", at, content)
    weights = at.where.visible[:, None].float().expand(1, heads, -1, -1)
    carried = scheme.carry(weights / weights.sum(-1, keepdim=True), at.where)
    if carried is not None:
        yield Table("added to the output of even attention, head 0", "query", "channel", carried[0, 0].tolist())


def _pairs(title: str, at: Placed, scores: Tensor) -> Iterator[Table | Curves]:
    scores = scores[0].masked_fill(~at.where.visible[0], float("nan"))
    if at.where.q_pos.shape[-1] == 1:
        yield Table(f"{title}, head 0", "query", "key", scores[0].tolist())
    shown = {f"head {head}": scores[head, _centre(at)] for head in range(min(len(scores), SIZES["heads"]))}
    alike = all(line.allclose(shown["head 0"], equal_nan=True) for line in shown.values())
    yield _seen(title, at, {"all heads": shown["head 0"]} if alike else shown)


def _seen(title: str, at: Placed, lines: dict[str, Tensor]) -> Table | Curves:
    """What one token sees: curves over the distance in a text, a map of an image."""
    centre, pos = _centre(at), at.where.q_pos[0]
    if pos.shape[-1] == 1:
        return Curves(
            title, "distance [tokens]", {name: line[: centre + 1].flip(0).tolist() for name, line in lines.items()}
        )
    name, line = next(iter(lines.items()))
    side = int(pos[:, -1].max()) + 1
    # of a film, the frame of that token
    frame = line.reshape(-1, side, side)[int(pos[centre, 0]) if pos.shape[-1] == 3 else 0]
    title = f"{title}, seen from the middle" + (f", {name}" if len(lines) > 1 else "")
    return Table(title, "row", "column", frame.tolist())


def _centre(at: Placed) -> int:
    tokens = at.where.shape[0]
    return tokens - 1 if at.where.q_pos.shape[-1] == 1 else tokens // 2
