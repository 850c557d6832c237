"""Schemes and geometries as `score_mod` and `mask_mod` of PyTorch's FlexAttention."""

from collections.abc import Callable
from typing import no_type_check

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Bias, Keys, Queries
from ordinate.ops.heads import repeat_keys
from ordinate.schemes._fast_forms import depends_on_offsets
from ordinate.schemes._scheme import Placed

Score = Float[Tensor, ""]
Index = Int[Tensor, ""]
ScoreMod = Callable[[Score, Index, Index, Index, Index], Score]
MaskMod = Callable[[Index, Index, Index, Index], Bool[Tensor, ""]]


def score_mod(at: Placed, q: Queries | None = None, k: Keys | None = None) -> ScoreMod | None:
    """Return the bias of a scheme as `score_mod` for `torch.nn.attention.flex_attention.flex_attention`.

    For a shift-invariant bias at integer positions, it reads a table with one number for each offset and head, at
    q_pos - k_pos; otherwise a bias tensor of queries x keys. The mask is `mask_mod`. Make it anew for each training
    step, outside of the compiled function; gradients of the scheme flow through it on a GPU, and without
    `torch.compile` on a CPU.

    Args:
        at: a scheme at a geometry.
        q: encoded queries, for schemes with a content-dependent bias.
        k: encoded keys, likewise.

    Returns:
        The function, or None if the scheme adds nothing to the scores.

    Raises:
        ValueError: a scheme that needs the attention weights or replaces q.k, or missing q and k.
    """
    hooks, name = set(at.scheme.hooks), type(at.scheme).__name__
    beyond = sorted(hooks & {"score", "value_bias"})
    need(
        not beyond,
        "a score_mod can only add to the scores q.k",
        f"got {name}, which uses {', '.join(beyond)}",
        "use ordinate.attend",
    )
    if "content_bias" in hooks:
        if q is None or k is None:
            raise ValueError(
                f"the bias of {name} depends on content; got no q and k; pass both, encoded: score_mod(at, q, k)"
            )
        return _of_pairs(_content(at, q, k))
    if "bias" not in hooks:
        return None
    table = _table(at)
    if table is not None:
        return _of_offsets(at.where, *table)
    return None if at.bias is None else _of_pairs(at.bias)


def mask_mod(where: Geometry) -> MaskMod:
    """Return the mask of a geometry as `mask_mod` for `torch.nn.attention.flex_attention.create_block_mask`."""
    start, window, is_causal = where.start, where.window, where.is_causal
    q_document, k_document = where.q_document, where.k_document

    # FlexAttention inspects the function itself: the wrapper of the run-time type checker would hide its signature
    @no_type_check
    def sees(b: Index, h: Index, q: Index, k: Index) -> Bool[Tensor, ""]:
        behind = start + q - k
        seen = behind >= 0 if is_causal else behind.new_ones((), dtype=torch.bool)
        if window is not None:
            seen = seen & (behind.abs() < window)
        if q_document is None or k_document is None:
            return seen
        theirs = k_document[_row(k_document, b), k]
        return seen & (q_document[_row(q_document, b), q] == theirs) & (theirs != PADDING)

    return sees


def _of_offsets(where: Geometry, table: Float[Tensor, "#h offsets"], least: int) -> ScoreMod:
    q_pos, k_pos = where.q_pos[..., 0], where.k_pos[..., 0]

    @no_type_check
    def add(score: Score, b: Index, h: Index, q: Index, k: Index) -> Score:
        offset = q_pos[_row(q_pos, b), q] - k_pos[_row(k_pos, b), k]
        return score + table[_row(table, h), offset - least].to(score.dtype)

    return add


def _of_pairs(bias: Bias) -> ScoreMod:
    @no_type_check
    def add(score: Score, b: Index, h: Index, q: Index, k: Index) -> Score:
        return score + bias[_row(bias, b), h * int(bias.shape[1] > 1), q, k].to(score.dtype)

    return add


@no_type_check
def _row(tensor: Tensor, index: Index) -> Index:
    # a size of 1 broadcasts
    return index * int(tensor.shape[0] > 1)


def _content(at: Placed, q: Queries, k: Keys) -> Bias:
    content = at.scheme.content_bias(q, repeat_keys(k, q.shape[1]), at.where)
    parts = [part for part in (content, at.bias) if part is not None]
    return sum(parts[1:], parts[0])


def _table(at: Placed) -> tuple[Float[Tensor, "#h offsets"], int] | None:
    """Return the bias at each offset and the smallest offset, if the bias depends on the offset alone.

    None also where the table would have more entries than there are pairs.
    """
    where, scheme = at.where, at.scheme
    q, k = where.q_pos, where.k_pos
    # reading positions would break the graph under torch.compile
    plain = (
        depends_on_offsets(scheme) and q.shape[-1] == 1 and not q.is_floating_point() and not k.is_floating_point()
    )
    if not plain or 0 in where.shape or torch.compiler.is_compiling():
        return None
    first, last, near, far = int(q.min()), int(q.max()), int(k.min()), int(k.max())
    if last - first + far - near + 1 > q.shape[0] * q.shape[1] * k.shape[1]:
        return None
    # all queries at the smallest key, then the smallest query at all keys: together they have each offset once, and
    # the scheme is evaluated within the range of the given positions only
    alone = changed(where, start=0, window=None, q_document=None, k_document=None, consecutive=False)
    queries = torch.arange(first, last + 1, device=q.device)[None, :, None]
    keys = torch.arange(far, near - 1, -1, device=k.device)[None, :, None]
    column = scheme.bias(changed(alone, q_pos=queries, k_pos=keys[:, -1:]))
    row = scheme.bias(changed(alone, q_pos=queries[:, :1], k_pos=keys[:, :-1]))
    if column is None or row is None:
        return None
    return torch.cat([row[0, :, 0], column[0, :, :, 0]], -1), first - far
