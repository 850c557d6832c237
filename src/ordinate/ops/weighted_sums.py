"""Sums whose terms are weighted by e^exponent and decay with each token, held so that no exponent overflows.

A sum S is held as S e^-p together with p, which is near the largest exponent of its terms. Two neighbouring stretches
of a text can be summed apart and joined, so chunks of it can be read side by side.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.native.wkv import Channel

# of several chunks two sums each, on the way back what each owes to the decay too, and their exponent
Held = tuple[Float[Tensor, "_ b _ c"], Float[Tensor, "b _ c"]]
Token = Callable[[int], Held]

# the exponent of a sum that holds nothing yet
NOTHING = -1e38


def of_chunks(token: Token, places: range, held: Held, chunks: int, decay: Channel) -> Held:
    """The sums over each chunk alone, its tokens read at these places; as many of them as `held` has."""
    sums, exponent = held
    shape = chunks, sums.shape[-1]
    local: Held = sums.new_zeros(*sums.shape[:2], *shape), exponent.new_full((len(exponent), *shape), NOTHING)
    for place in places:
        local = joined(local, token(place), decay)
    return local


def before_chunks(held: Held, local: Held, order: range, tokens: int, decay: Channel) -> Held:
    """The sums before each chunk of so many tokens, in this order; those of `held` are before the first."""
    found = [held]
    for chunk in order[:-1]:
        found.append(joined(found[-1], of_chunk(local, chunk), decay, tokens))
    sums, exponents = zip(*found[:: order.step], strict=True)
    return torch.cat(sums, 2), torch.cat(exponents, 1)


def joined(one: Held, two: Held, decay: Channel | float, tokens: int = 1) -> Held:
    """The sums over both, `two` being so many tokens further; it may owe nothing to the decay."""
    (sums, exponent), (added, top) = one, two
    exponent = exponent + tokens * decay
    top = torch.maximum(exponent, top)
    both = torch.exp(exponent - top) * sums
    if len(sums) == 4:
        both[2:].add_(both[:2], alpha=tokens)
    both[: len(added)].addcmul_(torch.exp(two[1] - top), added)
    return both, top


def of_chunk(held: Held, chunk: int) -> Held:
    """Those of one chunk."""
    own = slice(chunk, chunk + 1)
    return held[0][:, :, own], held[1][:, own]
