"""Sliding-window attention as a batch of equal blocks, by PyTorch's attention (SDPA): O(n w)."""

from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.attention._sdpa import sdpa_attention, unsupported_reason
from ordinate.attention._workspace import workspace_along
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Outputs
from ordinate.ops.blocks import overlapping_pieces, round_up_to_blocks, visible_keys, window_block_rows
from ordinate.schemes._scheme import Placed


class SlidingWindow(Backend):
    """Sliding-window attention by SDPA on blocks of queries, each with the keys in its window: O(n w), any device.

    Blocks whose windows lie inside the sequence have the same shape and mask, so they are computed as one batch. The
    rows before and after them are computed separately.
    """

    priority = 350

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject calls without a window, windows that hide little, and what SDPA does not support."""
        if call.where.window is None:
            return "there is no window"
        cut = _Blocking(call.where)
        if cut.count < 2 or 2 * cut.length > call.where.shape[1]:
            return "the window hides less than half of the sequence"
        return offset_bias_unsupported(call) or unsupported_reason(call)

    def run(self, call: AttentionCall) -> Outputs:
        """Call SDPA for the batch of equal blocks, and for the rows before and after them."""
        cut = _Blocking(call.where)
        parts = (
            _edge(call, 0, cut.first),
            _batched(call, cut),
            _edge(call, cut.first + cut.count * cut.rows, call.where.shape[0]),
        )
        return torch.cat(parts, 2)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Mask and bias of a block, the parts, and of several sequences copies of keys and values for each block.

        Extended along the number of blocks from calls with two and three of them.
        """
        blocks, rows = _Blocking(call.where).count, _Blocking(call.where).rows

        def of(count: int) -> Callable[[], Outputs]:
            queries, keys = (size - (blocks - count) * rows for size in call.where.shape)
            q, k, v = call.q[:, :, :queries].clone(), call.k[:, :, :keys].clone(), call.v[:, :, :keys].clone()
            part = changed(call, q=q, k=k, v=v, at=call.at.block(slice(0, queries), slice(0, keys)))
            return lambda: self.run(part)

        return workspace_along(of, blocks, (2, 3), rows, call)


class _Blocking:
    """Partition of the queries of a sliding window into equal blocks.

    Attributes:
        rows: queries per block.
        length: keys per block: those at its own indices, and whole blocks on the sides within its window.
        first: first query of the blocks whose keys all lie inside the sequence.
        key: first key of the first such block.
        count: number of such blocks.
    """

    def __init__(self, where: Geometry) -> None:
        reach = (where.window or 1) - 1
        self.rows = window_block_rows(reach)
        behind = round_up_to_blocks(reach, self.rows)
        ahead = 0 if where.is_causal else behind
        self.length = behind + self.rows + ahead
        queries, keys = where.shape
        self.first = min(max(0, behind - where.start), queries)
        self.key = where.start + self.first - behind
        last = min(queries, keys - where.start - ahead)
        self.count = max(0, last - self.first) // self.rows

    def queries(self, x: Tensor) -> Tensor:
        """Slice the last axis to the queries of these blocks."""
        return x[..., self.first : self.first + self.count * self.rows]

    def keys(self, x: Tensor) -> Tensor:
        """Slice the last axis to the keys of these blocks."""
        return x[..., self.key : self.key + (self.count - 1) * self.rows + self.length]


def _edge(call: AttentionCall, begin: int, end: int) -> Outputs:
    """Compute attention of the rows before or after the equal blocks."""
    if begin == end:
        return call.q.new_empty(*call.q.shape[:2], 0, call.v.shape[3])
    rows, keys = slice(begin, end), visible_keys(call.where, begin, end)
    at = call.at.block(rows, keys)
    return sdpa_attention(changed(call, q=call.q[:, :, rows], k=call.k[:, :, keys], v=call.v[:, :, keys], at=at))


def _batched(call: AttentionCall, cut: _Blocking) -> Outputs:
    """Compute attention of the equal blocks as one batch."""
    where, batch = call.where, call.q.shape[0]
    one = where.block(slice(cut.first, cut.first + cut.rows), slice(cut.key, cut.key + cut.length))
    # offsets equal those in memory order (`offset_bias_unsupported`), so the positions of one block serve all
    index = torch.arange(cut.length, device=call.q.device)[None, :, None]
    one = changed(one, q_pos=index[:, one.start : one.start + cut.rows], k_pos=index)
    if where.q_document is not None and where.k_document is not None:
        one = changed(
            one,
            q_document=overlapping_pieces(
                cut.queries(where.q_document.expand(batch, -1)), cut.rows, cut.rows
            ).flatten(0, 1),
            k_document=overlapping_pieces(cut.keys(where.k_document.expand(batch, -1)), cut.length, cut.rows).flatten(
                0, 1
            ),
        )
    q = cut.queries(call.q.mT).mT.unflatten(2, (cut.count, cut.rows)).transpose(1, 2).flatten(0, 1)
    k, v = (overlapping_pieces(cut.keys(x.mT), cut.length, cut.rows).mT.flatten(0, 1) for x in (call.k, call.v))
    out = sdpa_attention(changed(call, q=q, k=k, v=v, at=Placed(call.at.scheme, one)))
    return out.unflatten(0, (batch, cut.count)).transpose(1, 2).flatten(2, 3)
