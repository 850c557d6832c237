"""What a proof on a GPU distinguishes of the structure of calls, and a small geometry of each structure.

A kernel walks through ranges of tiles: partly or wholly visible, with a bias that is read or constant, in chunks of
keys. A proof says nothing of a loop that its case does not enter, so that the small geometry of a structure enters
every loop that a call of this structure enters.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.records import changed
from ordinate.ops.blocks import offset_geometry, visible_offsets
from ordinate.ops.triton import tiles
from ordinate.schemes._fast_forms import reach_of, vectors_of
from ordinate.schemes._scheme import Placed

ALIGNED = tiles.ALIGNED
# tokens of a case, and keys before the first query where there are some, the first that the scheme supports. The last
# tile of 32, 64 or 128 tokens has 16, or one where `ALIGNED` does not divide the number of tokens: so narrow windows
# hold whole tiles wherever they can. Short tables of positions allow the short ones alone
SIZES = ((272, 128), (64, 128), (64, 16), (32, 16), (16, 16), (8, 4), (2, 1))
# tokens of a case with pairs beyond a long reach, or with a wide window; as large ones take some GB of memory
LARGER = (400, 528, 656, 784, 912, 1040, 1168)
# by so many tokens a case is longer than the reach of a bias: whole tiles of 128 tokens lie beyond it on both sides
BEYOND = 320
# the largest tile
TILE = 128
# up to so many queries beside more keys are a decoding step, which kernels treat apart
FEW_QUERIES = 16
# with more keys than these a decoding step joins its chunks of keys in several steps
MANY_KEYS = 1024
# keys before those of a usual size then: more than 16 chunks of the largest size, or as many as the scheme supports
LONG_PASTS = (4224, 2048, 1152)
# a window up to this one is that of the case; others have the second, or are by the third longer than the reach of
# the bias, so that whole tiles lie in them, and beyond the reach
EXACT_WINDOW, WIDE_WINDOW, WIDE_BEYOND = tiles.NARROW, 300, 330
SCORE_HOOKS = frozenset({"score", "bias", "content_bias", "value_bias"})


class Size(NamedTuple):
    """Size of a small geometry.

    Args:
        tokens: queries, and as many keys.
        past: keys before the first query, or after the last, where there are some.
        window: the sliding window; 0: none.
    """

    tokens: int
    past: int
    window: int


def structure_of(at: Placed) -> tuple[str, ...]:
    """Return in words what a kernel, or its way through the code, may treat apart in a placed scheme's geometry."""
    where = at.where
    queries, keys = where.shape
    ahead = keys - queries - where.start
    given = {
        "causal": where.is_causal,
        "documents": where.q_document is not None,
        "keys before the first query": where.start > 0,
        "keys after the last query": ahead > 0,
        "queries after the last key": ahead < 0,
        "decoding": is_decoding(where),
        f"more than {MANY_KEYS} keys": _has_many_keys(where),
        "consecutive": where.consecutive,
        "one query": queries == 1,
        f"queries in {ALIGNED}s": queries % ALIGNED == 0,
        f"keys in {ALIGNED}s": keys % ALIGNED == 0,
    }
    most = at.scheme.max_length if is_scored(at) else None
    short = () if most is None or most > SIZES[0][0] + LONG_PASTS[0] else (f"positions below {constant(most)}",)
    return (*(name for name, holds in given.items() if holds), *_windows_of(at), *short)


def is_decoding(where: Geometry) -> bool:
    """Whether a few queries meet more keys, as in a decoding step."""
    return where.shape[0] <= min(FEW_QUERIES, where.shape[1] - 1)


def is_scored(at: Placed) -> bool:
    """Whether a scheme adds to the scores or the outputs of attention."""
    return bool(SCORE_HOOKS & set(at.scheme.hooks))


def constant(size: int) -> int:
    """Return a size as a number; torch.compile, to which it may be a symbol, compiles anew for another."""
    # the numbers of a range are the one place where it takes a symbol's value at once
    return len(range(size))


def small_geometries(given: Placed) -> Iterator[Geometry]:
    """Yield small geometries on the CPU, the best first; of structures with which the scheme allows no long ones too.

    Args:
        given: scheme and geometry of a call.
    """
    # windows hold whole tiles, of which some lie beyond the reach, if those begin with a tile of keys
    narrow = given.where.window is not None and given.where.window <= EXACT_WINDOW
    shift = int(_reach(given)) % TILE if narrow and has_far_pairs(given) else 0
    for size in _sizes(given):
        yield _geometry(given.where, size, shift)


def _has_many_keys(where: Geometry) -> bool:
    return is_decoding(where) and where.shape[1] > MANY_KEYS


def _windows_of(at: Placed) -> tuple[str, ...]:
    """Say the window; of a narrow one also how much of it has a constant bias."""
    window = at.where.window
    if window is None:
        return ()
    if window > EXACT_WINDOW:
        return (f"window of more than {EXACT_WINDOW}",)
    words = f"window of {constant(window)}"
    return (words, f"constant from {constant(int(_reach(at)))}") if has_far_pairs(at) else (words,)


def has_far_pairs(at: Placed) -> bool:
    """Whether pairs lie at a distance from which on what the scheme adds is known to be constant."""
    reach = _reach(at) if is_scored(at) else math.inf
    return math.isfinite(reach) and visible_offsets(at.where, reach)[2]


def _reach(at: Placed) -> float:
    """Return the distance from which on what a scheme adds is constant [tokens]; infinite: it is not known."""
    scheme, found = at.scheme, []
    if not at.where.consecutive:
        return math.inf
    if "bias" in scheme.hooks:
        known = reach_of(scheme)
        found.append(math.inf if known is None else known)
    if {"content_bias", "value_bias"} & set(scheme.hooks):
        vectors = at.cached("vectors of one offset", lambda: vectors_of(scheme, offset_geometry(at.where, 0, 1)))
        found.append(math.inf if vectors is None else vectors.reach)
    return max(found, default=math.inf)


def _sizes(given: Placed) -> Iterator[Size]:
    """Yield sizes of a geometry, the best first: pairs lie beyond the reach of the scheme if they do in the call."""
    where, (usual, past), far = given.where, SIZES[0], has_far_pairs(given)
    reach, window = int(_reach(given)) if far else 0, where.window or 0
    if window > EXACT_WINDOW:
        window = max(WIDE_WINDOW, reach + WIDE_BEYOND if far else 0)
    if _has_many_keys(where):
        wide = LONG_PASTS[0] + usual // 2
        yield from (Size(usual, keys, wide if window > EXACT_WINDOW else window) for keys in LONG_PASTS)
    least = max(reach + BEYOND if far else 0, window + 64 if window > usual // 2 else 0)
    # the longest of three documents has three quarters of the keys
    least *= 4 / 3 if far and where.q_document is not None else 1
    tokens = next((x for x in (usual, *LARGER) if x - ALIGNED >= least), None)
    if tokens is not None:
        yield Size(tokens, past, window)
    yield from (Size(*size, window) for size in SIZES)


def _counts(like: Geometry, size: Size, shift: int) -> tuple[int, int, int]:
    """Return numbers of queries and keys, and the first query's place among the keys, for a structure."""
    (queries, keys), (tokens, past, _) = like.shape, size
    if queries == keys == 1:
        # kernels for one query may be others
        return 1, 1, 0
    ahead, few = keys - queries - like.start, is_decoding(like)
    if few:
        count, step = min(queries, tokens), min(past, 64) * ((ahead > 0) - (ahead < 0))
        if like.start == 0:
            return count, _as_aligned(tokens + past, keys), 0
        held = _as_aligned(max(tokens - ALIGNED, 0) + past + shift + count + step, keys)
        return count, held, max(held - count - step, 1)
    begin = max(past - 1 + shift, 1) if like.start else 0
    fewer = ALIGNED - 1 if tokens > 2 * ALIGNED else ALIGNED // 2 - 1
    count = tokens if queries % ALIGNED == 0 or tokens % ALIGNED else tokens - fewer
    if ahead:
        count += past if ahead < 0 else 0
        held = begin + count + (past if ahead > 0 else -past)
        # an odd multiple of `ALIGNED`, so that tiles of keys have a last one, too
        return count, _as_aligned((held - ALIGNED) // (2 * ALIGNED) * 2 * ALIGNED + ALIGNED, keys), begin
    if begin and queries % ALIGNED == 0:
        begin = _as_aligned(begin, keys)
    elif begin and keys % ALIGNED == 0:
        count += -(begin + count) % ALIGNED + (0 if like.is_causal else ALIGNED)
        count, begin = (count, begin) if count % ALIGNED else (count - 1, begin + 1)
    elif begin and (begin + count) % ALIGNED == 0:
        count += 1
    return count, begin + count, begin


def _as_aligned(size: int, like: int) -> int:
    """Return the next size, from this one on, that is a multiple of `ALIGNED` if another one is, and only then."""
    return size + (-size % ALIGNED if like % ALIGNED == 0 else size % ALIGNED == 0)


def _geometry(like: Geometry, chosen: Size, shift: int) -> Geometry:
    """Return a geometry of this size whose structure is that of another one."""
    (size, _, window), (queries, keys, start) = chosen, _counts(like, chosen, shift)
    index = torch.arange(max(keys, start + queries), device="cpu")
    # a gap, so that positions are not the indices in memory
    pos = index if like.consecutive else index + (index >= size // 2)
    pos = pos.to(like.k_pos.dtype)[None, :, None].expand(1, -1, like.k_pos.shape[-1])
    documents = None
    if like.q_document is not None:
        # three documents in one row; the first queries of the other, whose keys are padding, see nothing
        documents = torch.stack([(index >= size // 4).long() + (index > size // 4), torch.zeros_like(index)])
        documents[1, : size // 3] = PADDING
    rows = slice(start, start + queries)
    return changed(
        like,
        q_pos=pos[:, rows],
        k_pos=pos[:, :keys],
        start=start,
        window=None if like.window is None else window,
        q_document=None if documents is None else documents[:, rows],
        k_document=None if documents is None else documents[:, :keys],
        continues=None,
    )
