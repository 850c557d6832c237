"""Parameters of RWKV-7's state update: decay, removal key and in-context learning rate of each token."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Queries
from ordinate.ops.native import correction as native
from ordinate.ops.native.scan import unsupported_reason

Channel = Float[Tensor, " width"]
# lower bound of norms, as in correction.cpp and PyTorch's `normalize`
MIN_NORM = 1e-12
# e^-0.5: log decays lie between minus this and 0
MAX_LOG_DECAY = 0.6065306597126334


class StateUpdate(NamedTuple):
    """State update of each token, as arguments of the generalised delta rule `ordinate.ops.delta_rule.corrected`.

    Args:
        w: log decay of each channel.
        k: replacement key, at which the value is written.
        a: negative removal key, at which the state is read before the update.
        b: key at which what was read is added.
    """

    w: Queries
    k: Queries
    a: Queries
    b: Queries


def state_update(
    k: Queries, slow: Queries, rate: Queries, decay: Channel, usual: Channel, erased: Channel, replaced: Channel
) -> StateUpdate:
    """Compute the generalised delta rule of RWKV-7 from the projections of each token.

        w = -e^(-1/2) sigmoid(w_0 + slow);   rate' = sigmoid(a_0 + rate);   c = k c_k / |k c_k|
        w, k (1 + (rate' - 1) c_a), -c, c rate'

    The state at the unit key c is removed in the share rate', the in-context learning rate; less is written at k in
    turn.

    Args:
        k: keys of each head, in float32 or wider, as are the others.
        slow: token-dependent part of the log decay, added to w_0.
        rate: token-dependent part of the in-context learning rate, added to a_0.
        decay: w_0 of each channel, heads concatenated, as are the following.
        usual: a_0.
        erased: c_k.
        replaced: c_a.
    Source: Peng et al. 2025, section 4, https://arxiv.org/abs/2503.14456.
    """
    channels = (decay, usual, erased, replaced)
    # one pass over memory in C++ where there is a compiler; results agree up to rounding
    if k.shape[3] <= native.MAX_HEAD_WIDTH and unsupported_reason("correction", k, slow, rate, *channels) is None:
        return StateUpdate(*native.state_update(_update, (k, slow, rate), channels))
    return _update(k, slow, rate, *channels)


def _update(
    k: Queries, slow: Queries, rate: Queries, decay: Channel, usual: Channel, erased: Channel, replaced: Channel
) -> StateUpdate:
    channels = (decay, usual, erased, replaced)
    decay, usual, erased, replaced = (x.view(k.shape[1], 1, k.shape[3]) for x in channels)
    w, part = -MAX_LOG_DECAY * torch.sigmoid(decay + slow), torch.sigmoid(usual + rate)
    read = k * erased
    # bounded below before the root, which has no finite derivatives at 0, where padding is
    unit = read / read.square().sum(-1, keepdim=True).clamp(min=MIN_NORM**2).sqrt()
    return StateUpdate(w, k * (1 + (part - 1) * replaced), -unit, unit * part)
