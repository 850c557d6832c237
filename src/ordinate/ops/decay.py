"""Linear attention with data-dependent decay per key channel (RWKV-6, gated linear attention), in chunks.

    y_t = r_t S_{t-1} + (sum_j r_tj u_j k_tj) v_t,     S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t

Interactions within a chunk are matrix products; earlier chunks contribute through the state. Only exponentials of
non-positive numbers are taken, so that no decay overflows, however strong it is.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Outputs, Queries
from ordinate.core.tensors import without_autocast
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.native import recurrence
from ordinate.ops.native.recurrence import Bonus, Matrices
from ordinate.ops.native.scan import check_shapes, unsupported_reason
from ordinate.ops.triton import chunk_scan
from ordinate.ops.triton import recurrence as triton
from ordinate.ops.triton.chunk_scan import Transitions, Updates

Chunks = Float[Tensor, "b h chunks size d"]

# tokens per chunk: a power of two, since `decayed_products` halves chunks repeatedly
CHUNK = 64
# e^-(e^80) is 0 in every dtype, and e^80 finite in float32
MAX_LOG_RATE = 80.0


def decay_rate(log_rate: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return e^log_rate, the rate r of a decay e^-r; finite, so that the gradient of a decay of 0 is 0, not NaN."""
    return torch.exp(log_rate.clamp(max=MAX_LOG_RATE))


@custom_operator("v", "start")
def decaying_linear_attention(
    r: Queries, k: Queries, v: Outputs, w: Queries, bonus: Bonus, start: Matrices
) -> tuple[Outputs, Matrices]:
    """Return the output of each token and the final state.

    Args:
        r: receptance (the queries), in float32 or wider, as are the others.
        k: keys; 0 at padding.
        v: values.
        w: log decay of each channel, negative.
        bonus: u, the weight of the current token, which is not in the state yet.
        start: initial state, after earlier tokens; zeros if there are none.
    """
    batch, heads, tokens, width = r.shape
    check_shapes(
        k=(k, r.shape),
        v=(v, (batch, heads, tokens, v.shape[-1])),
        w=(w, r.shape),
        bonus=(bonus, (heads, width)),
        start=(start, (batch, heads, width, v.shape[-1])),
    )
    # on a GPU in Triton, after it has agreed with `_in_chunks` there
    if triton.unusable_reason(_plain, r, k, v, w, bonus, start) is None:
        return triton.recurrence(_plain, r, k, v, w, bonus, start)
    # one pass in C++ where there is a compiler; results agree up to rounding
    if unsupported_reason("recurrence", r, k, v, w, bonus, start) is None:
        return recurrence.decaying_linear_attention(_in_chunks, r, k, v, w, bonus, start)
    return _in_chunks(r, w, k, v, bonus, start)


@custom_operator("v", "start")
def read_after_update(q: Queries, k: Queries, v: Outputs, w: Queries, start: Matrices) -> tuple[Outputs, Matrices]:
    """Return the output of each token and the final state, each token being read after it is stored (GLA).

        S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t,     y_t = q_t S_t

    Args:
        q: queries, in float32 or wider, as are the others.
        k: keys; 0 at padding.
        v: values.
        w: log decay of each channel, not positive.
        start: initial state, after earlier tokens; zeros if there are none.
    """
    batch, heads, tokens, _ = q.shape
    check_shapes(
        k=(k, q.shape),
        v=(v, (batch, heads, tokens, v.shape[-1])),
        w=(w, q.shape),
        start=(start, (batch, heads, q.shape[3], v.shape[-1])),
    )
    if triton.unusable_reason(_plain, q, k, v, w, None, start) is None:
        return triton.recurrence(_plain, q, k, v, w, None, start)
    # what is stored before has decayed once more by the time of reading; the token itself has not
    bonus = q.new_zeros(q.shape[1], q.shape[3])
    y, last = decaying_linear_attention(q * torch.exp(w), k, v, w, bonus, start)
    return y + (q * k).sum(-1, keepdim=True) * v, last


def _plain(
    q: Queries, k: Queries, v: Outputs, w: Queries, bonus: Bonus | None, start: Matrices
) -> tuple[Outputs, Matrices]:
    """Both ways of reading, in chunks; without a bonus after the update."""
    if bonus is not None:
        return _in_chunks(q, w, k, v, bonus, start)
    y, last = _in_chunks(q * torch.exp(w), w, k, v, q.new_zeros(q.shape[1], q.shape[3]), start)
    return y + (q * k).sum(-1, keepdim=True) * v, last


def _in_chunks(
    r: Queries, w: Queries, k: Queries, v: Outputs, bonus: Bonus, start: Matrices
) -> tuple[Outputs, Matrices]:
    # long sums need float32: autocast would compute these products in 16 bits
    with without_autocast(r):
        asks, keys, values, logs = (split_chunks(x) for x in (r, k, v, w))
        added = (keys * torch.exp(reverse_exclusive_cumsum(logs))).mT @ values
        states, last = _scan(start, torch.diag_embed(torch.exp(logs.sum(3))), added)
        own = (asks * bonus[:, None, None] * keys).sum(-1, keepdim=True)
        given = decayed_products(asks[None], keys[None], logs)[0, 0]
        y = given @ values + own * values + (asks * torch.exp(exclusive_cumsum(logs))) @ states
        return y.flatten(2, 3)[:, :, : v.shape[2]], last


def split_chunks(x: Queries) -> Chunks:
    """Split into chunks, zero-padded at the end; a short sequence is one chunk, padded to a power of 2."""
    tokens = x.shape[2]
    size = min(CHUNK, 1 << max(0, tokens - 1).bit_length())
    chunks = max(1, -(-tokens // size))
    return torch.nn.functional.pad(x, (0, 0, 0, chunks * size - tokens)).unflatten(2, (chunks, size))


def decayed_products(
    asks: Float[Tensor, "s b h chunks size d"],
    keys: Float[Tensor, "t b h chunks size d"],
    logs: Chunks,
) -> Float[Tensor, "s t b h chunks size size"]:
    """Decayed products of each pair of tokens i < t of a chunk, sum_j ask_tj key_ij e^(sum of w_j between them).

    The result is strictly lower triangular. All pairs between the later and the earlier half of a range are one
    matrix product: both decays are counted from the boundary between the halves, so no exponent is positive. A single
    product with decays counted from the start of the chunk would need e^(positive) and overflow. The pairs inside of
    each half are treated in the same way.

    Args:
        asks: stack of several kinds of queries.
        keys: stack of several kinds of keys.
        logs: log decays.
    """
    squares = asks.new_zeros(len(asks), len(keys), *logs.shape[:4], 1, 1)
    half = 1
    while half < logs.shape[3]:
        early, late = _halves(logs, half)
        one = _halves(asks, half)[1] * torch.exp(exclusive_cumsum(late))
        two = _halves(keys, half)[0] * torch.exp(reverse_exclusive_cumsum(early))
        one, two = (x.movedim(0, -3).flatten(-3, -2) for x in (one, two))
        square = (one @ two.mT).unflatten(-1, (-1, half)).unflatten(-3, (-1, half)).movedim((-4, -2), (0, 1))
        first, second = squares[..., 0::2, :, :], squares[..., 1::2, :, :]
        upper, lower = torch.cat([first, torch.zeros_like(first)], -1), torch.cat([square, second], -1)
        squares = torch.cat([upper, lower], -2)
        half *= 2
    return squares[..., 0, :, :]


def exclusive_cumsum(x: Float[Tensor, "*rest size d"]) -> Float[Tensor, "*rest size d"]:
    """Exclusive cumulative sum over tokens; not inclusive sum minus x, which would lose digits to cancellation."""
    return torch.nn.functional.pad(x[..., :-1, :].cumsum(-2), (0, 0, 1, 0))


def reverse_exclusive_cumsum(x: Float[Tensor, "*rest size d"]) -> Float[Tensor, "*rest size d"]:
    """Exclusive cumulative sum over tokens from the end."""
    return exclusive_cumsum(x.flip(-2)).flip(-2)


def scan_chunks(start: Matrices, kept: Transitions, added: Updates) -> tuple[Updates, Matrices]:
    """Sequential scan over chunks: the state before each chunk, and the one after the last.

        S_c = kept_c S_(c-1) + added_c

    Args:
        start: initial state.
        kept: transition matrix of each chunk.
        added: update of each chunk.
    """
    # on a GPU in Triton, after it has agreed with the loop there
    if chunk_scan.unusable_reason(_scan, start, kept, added) is None:
        return chunk_scan.scan(_scan, start, kept, added)
    return _scan(start, kept, added)


def _scan(start: Matrices, kept: Transitions, added: Updates) -> tuple[Updates, Matrices]:
    states = [start]
    for chunk in range(added.shape[2]):
        states.append(kept[:, :, chunk] @ states[-1] + added[:, :, chunk])
    return torch.stack(states[:-1], 2), states[-1]


def _halves(x: Float[Tensor, "... size d"], half: int) -> tuple[Tensor, Tensor]:
    early, late = x.unflatten(-2, (-1, 2, half)).unbind(-3)
    return early, late
