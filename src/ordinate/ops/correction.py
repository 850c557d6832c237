"""What a token of RWKV-7 changes in the matrix of its head."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from ordinate.native import correction as native
from ordinate.native.scan import refuses
from ordinate.shapes import Queries

Channel = Float[Tensor, " width"]
# e^-0.5: the logarithm of a decay lies between minus this and 0
STRONGEST = 0.6065306597126334


class Correction(NamedTuple):
    """What each token changes, as `ordinate.ops.delta.corrected` asks for it.

    Args:
        w: the logarithms of what is kept of each channel.
        k: where it writes to.
        a: where it reads the state before.
        b: where what was read there is written to.
    """

    w: Queries
    k: Queries
    a: Queries
    b: Queries


def correction(
    k: Queries, slow: Queries, rate: Queries, decay: Channel, usual: Channel, erased: Channel, replaced: Channel
) -> Correction:
    """What stands at the unit key c is replaced by a part of it, the rate; so much less is written at the key.

        w = -e^(-1/2) sigmoid(w_0 + slow);   rate' = sigmoid(a_0 + rate);   c = k c_k / |k c_k|
        w, k (1 + (rate' - 1) c_a), -c, c rate'

    Args:
        k: the keys of each head, in float32 at least, as all others.
        slow: how slowly each channel is forgotten, beside w_0.
        rate: how much is replaced, beside a_0.
        decay: w_0 of each channel of all heads, one head after another, as are the others.
        usual: a_0.
        erased: c_k.
        replaced: c_a.
    Source: Peng et al. 2025, section 4, https://arxiv.org/abs/2503.14456.
    """
    channels = (decay, usual, erased, replaced)
    # one pass over memory in C++ where there is a compiler: the same to rounding
    if k.shape[3] <= native.WIDEST and refuses("correction", k, slow, rate, *channels) is None:
        return Correction(*native.correction(k, slow, rate, *channels))
    decay, usual, erased, replaced = (x.view(k.shape[1], 1, k.shape[3]) for x in channels)
    w, part = -STRONGEST * torch.sigmoid(decay + slow), torch.sigmoid(usual + rate)
    unit = normalize(k * erased, dim=-1)
    return Correction(w, k * (1 + (part - 1) * replaced), -unit, unit * part)
