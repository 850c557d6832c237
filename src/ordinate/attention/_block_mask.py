"""Block masks of PyTorch's FlexAttention, from the structure of a geometry: no queries x keys tensor is made."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from ordinate.core.geometry import PADDING, Geometry
from ordinate.schemes._score_mod import mask_mod

# queries and keys of a block
BLOCK = 128

Blocks = Bool[Tensor, "#b rows columns"]


def block_mask(where: Geometry) -> BlockMask | None:
    """Return which blocks of 128 x 128 pairs are visible, in part or as a whole; None if no pair is hidden.

    Computed from first and last indices and document ids of each block, without reading a value. A block that is in
    doubt counts as visible in part, where FlexAttention asks for each pair.
    """
    if where.is_unmasked:
        return None
    some, whole = visible_blocks(where)
    part = some & ~whole
    return BlockMask.from_kv_blocks(
        *_ordered(part),
        *_ordered(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod(where),
        seq_lengths=where.shape,
    )


def visible_blocks(where: Geometry) -> tuple[Blocks, Blocks]:
    """Return the blocks with some visible pair, or in doubt, and those whose pairs are all visible."""
    (queries, keys), device = where.shape, where.q_pos.device
    first_q, last_q = (x[:, None] + where.start for x in _bounds(queries, device))
    first_k, last_k = _bounds(keys, device)
    # how far the key is behind the query, at least and at most
    least, most = first_q - last_k, last_q - first_k
    low = 0 if where.is_causal else -keys - queries - where.start
    high = keys + queries + where.start
    if where.window is not None:
        low, high = max(low, 1 - where.window), where.window - 1
    some = least.clamp(min=low) <= most.clamp(max=high)
    # the last block of a ragged length is never taken as a whole
    full = (last_q - first_q == BLOCK - 1) & (last_k - first_k == BLOCK - 1)
    whole = (least >= low) & (most <= high) & full
    if where.q_document is None or where.k_document is None:
        return some[None], whole[None]
    (least_q, most_q), (least_k, most_k) = (_documents(x) for x in (where.q_document, where.k_document))
    least_q, most_q, least_k, most_k = least_q[..., None], most_q[..., None], least_k[:, None], most_k[:, None]
    shared = (least_q <= most_k) & (least_k <= most_q) & (most_q != PADDING) & (most_k != PADDING)
    one = (least_q == most_q) & (least_k == most_k) & (least_q == least_k)
    return some & shared, whole & shared & one


def _bounds(size: int, device: torch.device) -> tuple[Int[Tensor, " blocks"], Int[Tensor, " blocks"]]:
    first = torch.arange(0, size, BLOCK, device=device)
    return first, (first + BLOCK - 1).clamp(max=size - 1)


def _documents(ids: Int[Tensor, "b n"]) -> tuple[Int[Tensor, "b blocks"], Int[Tensor, "b blocks"]]:
    """Return the smallest and the largest document id of each block."""
    rest = -ids.shape[1] % BLOCK
    # the last block is filled up with its last id
    filled = torch.cat([ids, ids[:, -1:].expand(-1, rest)], 1).unflatten(1, (-1, BLOCK))
    return filled.amin(2), filled.amax(2)


def _ordered(blocks: Blocks) -> tuple[Int[Tensor, "#b 1 rows"], Int[Tensor, "#b 1 rows columns"]]:
    """Return how many blocks of each row are marked, and the indices of all, the marked ones first."""
    marked = blocks[:, None].int()
    order = marked.argsort(dim=-1, descending=True, stable=True)
    return marked.sum(-1).int(), order.int()
