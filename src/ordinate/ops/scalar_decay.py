"""Linear attention with one decay per head and token (Mamba-2's SSD, RetNet), in chunks.

    S_t = e^{w_t} S_{t-1} + k_t^T v_t,     y_t = q_t S_t

Interactions within a chunk are matrix products, weighted by the decays between their tokens; earlier chunks
contribute through the state. Only exponentials of non-positive numbers are taken, so that no decay overflows.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.shapes import Outputs
from ordinate.core.tensors import without_autocast
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.decay import read_after_update, split_chunks
from ordinate.ops.heads import repeat_keys
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.native.scan import check_shapes, unsupported_reason
from ordinate.ops.triton import recurrence as triton

LogDecays = Float[Tensor, "b h n"]
# each of `g` groups of heads shares them
Grouped = Float[Tensor, "b g i d"]


@custom_operator("v", "start")
def scalar_decay_attention(
    q: Grouped, k: Grouped, v: Outputs, logs: LogDecays, start: Matrices
) -> tuple[Outputs, Matrices]:
    """Return the output of each token and the final state.

    Args:
        q: queries, in float32 or wider, as are the others; heads in fewer groups share queries and keys.
        k: keys, in as many groups; 0 at padding.
        v: values of each head.
        logs: log decay of each head and token, w, not positive.
        start: initial state, after earlier tokens; zeros if there are none.
    """
    batch, groups, tokens, width = q.shape
    heads = v.shape[1]
    need(
        heads % groups == 0,
        "groups of queries must divide the heads",
        lambda: f"got {groups} and {heads}",
        "give one group for each of several heads",
    )
    check_shapes(
        k=(k, q.shape),
        v=(v, (batch, heads, tokens, v.shape[3])),
        logs=(logs, (batch, heads, tokens)),
        start=(start, (batch, heads, width, v.shape[3])),
    )
    found = by_triton(q, k, v, logs, start)
    if found is not None:
        return found
    # one pass in C++ where there is a compiler, as the rule with a decay for each channel
    if unsupported_reason("recurrence", q, k, v, logs, start) is None:
        asks, keys = (repeat_keys(x, heads) for x in (q, k))
        return read_after_update(asks, keys, v, logs[..., None].expand_as(keys), start)
    return _in_chunks(q, k, v, logs, start)


def by_triton(
    q: Grouped, k: Grouped, v: Outputs, logs: LogDecays, start: Matrices
) -> tuple[Outputs, Matrices] | None:
    """Compute it in Triton on a GPU, after that has agreed with the products in chunks there; else return None.

    Args:
        q, k, v, logs, start: as in `scalar_decay_attention`, of shapes that fit.
    """
    given = q, k, v, logs[..., None], None, start
    return triton.recurrence(_plain, *given) if triton.unusable_reason(_plain, *given) is None else None


def _plain(
    q: Grouped, k: Grouped, v: Outputs, w: Float[Tensor, "b h n 1"], bonus: None, start: Matrices
) -> tuple[Outputs, Matrices]:
    return _in_chunks(q, k, v, w[..., 0], start)


def _in_chunks(q: Grouped, k: Grouped, v: Outputs, logs: LogDecays, start: Matrices) -> tuple[Outputs, Matrices]:
    groups = q.shape[1]
    # long sums need float32: autocast would compute these products in 16 bits
    with without_autocast(q):
        asks, keys = split_chunks(q)[:, :, None], split_chunks(k)[:, :, None]
        values, fades = (split_chunks(x).unflatten(1, (groups, -1)) for x in (v, logs[..., None]))
        enter, leave, pairs = chunk_decays(fades[..., 0])
        added = keys.mT @ (values * leave[..., None])
        states, last = scan_scalar(start.unflatten(1, (groups, -1)), enter[..., -1], added)
        y = (asks @ keys.mT * pairs) @ values + (asks @ states) * enter[..., None]
        return y.flatten(1, 2).flatten(2, 3)[:, :, : v.shape[2]], last.flatten(1, 2)


def chunk_decays(
    logs: Float[Tensor, "*rest size"],
) -> tuple[Float[Tensor, "*rest size"], Float[Tensor, "*rest size"], Float[Tensor, "*rest size size"]]:
    """Decays within chunks: into a token from the chunk's begin, to the chunk's end, and to it from each earlier one.

    Args:
        logs: log decays. The decay of a token applies to what was stored before it.
    """
    places = torch.arange(logs.shape[-1], device=logs.device)
    before = places[:, None] > places
    # summed from each token on: differences of sums from the chunk's begin would lose digits to cancellation
    sums = torch.where(before, logs[..., None], logs.new_zeros(())).cumsum(-2)
    later = places[:, None] >= places
    pairs = torch.where(later, sums, sums.new_full((), -torch.inf)).exp()
    return logs.cumsum(-1).exp(), pairs[..., -1, :], pairs


def scan_scalar(
    start: Float[Tensor, "*rest d e"], kept: Float[Tensor, "*rest chunks"], added: Float[Tensor, "*rest chunks d e"]
) -> tuple[Float[Tensor, "*rest chunks d e"], Float[Tensor, "*rest d e"]]:
    """Scan over chunks: the state before each chunk, and the one after the last: S_c = kept_c S_(c-1) + added_c."""
    states = [start]
    for chunk in range(added.shape[-3]):
        states.append(torch.addcmul(added[..., chunk, :, :], kept[..., chunk, None, None], states[-1]))
    return torch.stack(states[:-1], -3), states[-1]
