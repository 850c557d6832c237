"""Attention in chunks of positions, as in Llama 4."""

from jaxtyping import Int, Real
from torch import Tensor

from ordinate.core.checks import need, need_positive_counts
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.records import changed
from ordinate.core.sequence_shard import SequenceShard
from ordinate.core.tensors import has_free_values

# positions and document ids lie below it
LARGEST = 1 << 31


def in_chunks(where: Geometry, size: int) -> Geometry:
    """Return a geometry in which a query attends to keys of its own chunk of positions only.

        visible before, and floor(query position / size) = floor(key position / size)

    Chunks are counted in each document, whose positions begin at 0: neither padding before its tokens nor a KV cache
    moves them. They become document ids, which every backend serves, and where positions follow each other in memory
    also a window, with which backends pass over the other keys. The result serves one call of attention; what
    continues a cache is the geometry without chunks.

    Args:
        where: geometry whose positions have one axis.
        size: positions of a chunk [tokens].

    Returns:
        The geometry, or `where` itself where all tokens are seen to lie in one chunk.

    Raises:
        TypeError: a size that is no whole number.
        ValueError: a size of 0 or below, or positions of several axes.
    Source: Meta AI 2025, Llama 4, https://ai.meta.com/blog/llama-4-multimodal-intelligence; `attention_chunk_size` of
        transformers.
    Departs: transformers counts tokens behind the padding on the left; positions given by hand that do not count from
        0 move the chunks here, not there.
    """
    need_positive_counts(chunk=size)
    axes = where.q_pos.shape[-1]
    must = "attention in chunks needs positions of one axis"
    need(axes == 1, must, f"got {axes} axes", "leave the chunks out")
    if isinstance(where, SequenceShard):
        return changed(where, sequence=in_chunks(where.sequence, size))
    if _lies_in_one(where, size):
        return where
    # of keys in one chunk, the distance in memory is that of positions
    sizes = [one for one in (where.window, size if where.consecutive else None) if one is not None]
    return changed(
        where,
        window=min(sizes, default=None),
        q_document=_chunk_ids(where.q_pos, where.q_document, size),
        k_document=_chunk_ids(where.k_pos, where.k_document, size),
        one_document=False,
        packed_sizes=None,
    )


def _chunk_of(pos: Tensor, size: int) -> Tensor:
    return pos[..., 0].div(size, rounding_mode="floor").long()


def _lies_in_one(where: Geometry, size: int) -> bool:
    """Whether all positions can be read without waiting for a device, and lie in one chunk."""
    places = (where.q_pos,) if where.q_pos is where.k_pos else (where.q_pos, where.k_pos)
    if not all(has_free_values(pos) and pos.numel() for pos in places):
        return False
    chunks = [_chunk_of(pos, size) for pos in places]
    return len({int(end) for chunk in chunks for end in chunk.aminmax()}) == 1


def _chunk_ids(
    pos: Real[Tensor, "#b n axes"], document: Int[Tensor, "#b n"] | None, size: int
) -> Int[Tensor, "#b n"]:
    """Document ids that differ between chunks; padding stays padding."""
    # above 0 at positions below 0, too
    chunk = _chunk_of(pos, size) + LARGEST
    if document is None:
        return chunk
    return (2 * LARGEST * document.long() + chunk).masked_fill(document == PADDING, PADDING)
