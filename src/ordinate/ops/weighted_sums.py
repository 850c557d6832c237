"""Exponentially weighted running sums with decay in a numerically stable form (as in log-sum-exp), over chunks.

A sum S is stored as S e^-p together with p, which is near the largest exponent of its terms. Sums over two adjacent
ranges of tokens can be joined (the operation is associative), so chunks can be processed in parallel.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.native.wkv import Channel

# scaled sums of several chunks, with their exponent: numerator and denominator, in the backward pass also the
# derivative of each by the decay
RunningSums = tuple[Float[Tensor, "_ b _ c"], Float[Tensor, "b _ c"]]
Token = Callable[[int], RunningSums]

# exponent of an empty sum
EMPTY_EXPONENT = -1e38


def sum_chunks(token: Token, places: range, held: RunningSums, chunks: int, decay: Channel) -> RunningSums:
    """Sums over each chunk alone, its tokens read in the order of `places`; with the kinds of sums of `held`."""
    sums, exponent = held
    shape = chunks, sums.shape[-1]
    local: RunningSums = (
        sums.new_zeros(*sums.shape[:2], *shape),
        exponent.new_full((len(exponent), *shape), EMPTY_EXPONENT),
    )
    for place in places:
        local = join_sums(local, token(place), decay)
    return local


def scan_chunks(held: RunningSums, local: RunningSums, order: range, tokens: int, decay: Channel) -> RunningSums:
    """Exclusive scan over chunks of `tokens` tokens in this order, from `held`: the sums before each chunk."""
    found = [held]
    for chunk in order[:-1]:
        found.append(join_sums(found[-1], select_chunk(local, chunk), decay, tokens))
    sums, exponents = zip(*found[:: order.step], strict=True)
    return torch.cat(sums, 2), torch.cat(exponents, 1)


def join_sums(one: RunningSums, two: RunningSums, decay: Channel | float, tokens: int = 1) -> RunningSums:
    """Join sums over adjacent ranges, `two` being `tokens` tokens later; it may lack the derivatives by the decay."""
    (sums, exponent), (added, top) = one, two
    exponent = exponent + tokens * decay
    top = torch.maximum(exponent, top)
    both = torch.exp(exponent - top) * sums
    # d/dw of e^(n w) S is e^(n w) (dS/dw + n S)
    if len(sums) == 4:
        both[2:].add_(both[:2], alpha=tokens)
    both[: len(added)].addcmul_(torch.exp(two[1] - top), added)
    return both, top


def select_chunk(held: RunningSums, chunk: int) -> RunningSums:
    """Select the sums of one chunk."""
    own = slice(chunk, chunk + 1)
    return held[0][:, :, own], held[1][:, own]
