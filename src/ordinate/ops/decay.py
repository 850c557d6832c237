"""A matrix that tokens write into and read from, each channel of the keys with a decay that the tokens choose.

    y_t = r_t S_{t-1} + (sum_j r_tj u_j k_tj) v_t,     S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t

Tokens are laid out in chunks: what a chunk's tokens give each other are products of matrices, what they get from
earlier chunks comes through the state. However strong the decay is, no exponential of a number above zero is taken.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.native import recurrence
from ordinate.native.recurrence import Bonus, Matrices
from ordinate.native.scan import need_shapes, refuses
from ordinate.shapes import Outputs, Queries

Chunks = Float[Tensor, "b h chunks size d"]
Kept = Float[Tensor, "b h chunks d d"]

# tokens of a chunk: a power of two
SIZE = 64


def decayed(
    r: Queries, k: Queries, v: Outputs, w: Queries, bonus: Bonus, start: Matrices
) -> tuple[Outputs, Matrices]:
    """What each token reads, and the state to go on from.

    Args:
        r: what asks, in float32 at least, as all others.
        k: where it is written to; 0 for a token that is not there.
        v: what is written.
        w: the logarithms of what is kept of each channel, below zero.
        bonus: u, how much a token reads of itself.
        start: the state after the tokens before; zeros: there are none.
    """
    batch, heads, tokens, width = r.shape
    need_shapes(
        k=(k, r.shape),
        v=(v, (batch, heads, tokens, v.shape[-1])),
        w=(w, r.shape),
        bonus=(bonus, (heads, width)),
        start=(start, (batch, heads, width, v.shape[-1])),
    )
    # one pass in C++ where there is a compiler: the same to rounding
    if refuses("recurrence", r, k, v, w, bonus, start) is None:
        return recurrence.decayed(r, k, v, w, bonus, start)
    # the digits are needed, whatever autocast says
    with torch.autocast(r.device.type, enabled=False):
        asks, keys, values, logs = (in_chunks(x) for x in (r, k, v, w))
        added = (keys * torch.exp(sums_after(logs))).mT @ values
        states, last = carried(start, torch.diag_embed(torch.exp(logs.sum(3))), added)
        own = (asks * bonus[:, None, None] * keys).sum(-1, keepdim=True)
        given = earlier_products(asks[None], keys[None], logs)[0, 0]
        y = given @ values + own * values + (asks * torch.exp(sums_before(logs))) @ states
        return y.flatten(2, 3)[:, :, : v.shape[2]], last


def in_chunks(x: Queries) -> Chunks:
    """Whole chunks, filled up with zeros at the end."""
    tokens = x.shape[2]
    size = min(SIZE, 1 << max(0, tokens - 1).bit_length())
    chunks = max(1, -(-tokens // size))
    return torch.nn.functional.pad(x, (0, 0, 0, chunks * size - tokens)).unflatten(2, (chunks, size))


def earlier_products(
    asks: Float[Tensor, "s b h chunks size d"],
    keys: Float[Tensor, "t b h chunks size d"],
    logs: Chunks,
) -> Float[Tensor, "s t b h chunks size size"]:
    """For each pair of tokens i < t of a chunk, sum_j ask_tj key_ij e^(sum of w_j between them); 0 for the others.

    The pairs of a later half and an earlier one are one product: both decays are counted from the place between the
    halves, and none of their exponents is above zero. The pairs inside of each half are made alike.

    Args:
        asks: several kinds of what asks.
        keys: several kinds of what is asked.
        logs: logarithms of the decays.
    """
    squares = asks.new_zeros(len(asks), len(keys), *logs.shape[:4], 1, 1)
    half = 1
    while half < logs.shape[3]:
        early, late = _halves(logs, half)
        one = _halves(asks, half)[1] * torch.exp(sums_before(late))
        two = _halves(keys, half)[0] * torch.exp(sums_after(early))
        one, two = (x.movedim(0, -3).flatten(-3, -2) for x in (one, two))
        square = (one @ two.mT).unflatten(-1, (-1, half)).unflatten(-3, (-1, half)).movedim((-4, -2), (0, 1))
        first, second = squares[..., 0::2, :, :], squares[..., 1::2, :, :]
        upper, lower = torch.cat([first, torch.zeros_like(first)], -1), torch.cat([square, second], -1)
        squares = torch.cat([upper, lower], -2)
        half *= 2
    return squares[..., 0, :, :]


def sums_before(x: Float[Tensor, "*rest size d"]) -> Float[Tensor, "*rest size d"]:
    """The sums over the tokens before each one. No difference of larger sums, which would round more."""
    return torch.nn.functional.pad(x[..., :-1, :].cumsum(-2), (0, 0, 1, 0))


def sums_after(x: Float[Tensor, "*rest size d"]) -> Float[Tensor, "*rest size d"]:
    """The sums over the tokens after each one."""
    return sums_before(x.flip(-2)).flip(-2)


def carried(
    start: Matrices, kept: Kept, added: Float[Tensor, "b h chunks d e"]
) -> tuple[Float[Tensor, "b h chunks d e"], Matrices]:
    """The states before each chunk and after the last one: each is what is kept of the one before, and what is added.

    Args:
        start: the first one.
        kept: what a chunk makes of the state, as a matrix.
        added: what it adds.
    """
    states = [start]
    for chunk in range(added.shape[2]):
        states.append(kept[:, :, chunk] @ states[-1] + added[:, :, chunk])
    return torch.stack(states[:-1], 2), states[-1]


def _halves(x: Float[Tensor, "... size d"], half: int) -> tuple[Tensor, Tensor]:
    early, late = x.unflatten(-2, (-1, 2, half)).unbind(-3)
    return early, late
