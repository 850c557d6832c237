"""PyTorch's FlexAttention, on GPUs."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ordinate.flex import mask_mod, score_mod
from ordinate.route import Call, Route, table_refused
from ordinate.shapes import Outputs

# its kernels multiply at least so many channels
CHANNELS = 16


class Flex(Route):
    """`torch.nn.attention.flex_attention`, compiled: a bias of distances without a tensor of queries x keys, on GPUs.

    It has not run on a GPU so far. Its order is beyond that of `reference`, so that it is used where it is named, and
    nowhere else.
    """

    order = 1100

    def refuses(self, call: Call) -> str | None:
        """Other devices, biases that are no table, dropout, float64, and heads too narrow for its kernels."""
        if call.q.device.type != "cuda":
            return "it is made for GPUs"
        return unfit(call)

    def run(self, call: Call) -> Outputs:
        """One call of a compiled function, kept for calls of this form."""
        where, hooks = call.where, call.at.scheme.hooks
        structure = where.hides_future, where.window, where.q_document is None, "bias" in hooks
        grad = torch.is_grad_enabled() and any(x.requires_grad for x in (call.q, call.k, call.v))
        widths = call.q.shape[-1], call.v.shape[-1], call.groups
        return flexed(call, compiled((structure, widths, call.q.dtype, call.q.device, grad)))

    def bytes(self, call: Call) -> int:
        """Which blocks of 128 queries and keys see each other, and a logarithm for each query."""
        queries, keys = (size // 128 + 1 for size in call.where.shape)
        return 4 * (4 * call.where.rows * queries * keys + call.q.shape[:3].numel())


def unfit(call: Call) -> str | None:
    """Why FlexAttention cannot take a call on any device; None: it can."""
    if torch.compiler.is_compiling():
        return "it is compiled by itself"
    if call.dropout:
        return "it drops nothing"
    if call.q.dtype == torch.float64:
        return "it computes in float32"
    if 0 in call.q.shape or 0 in call.k.shape:
        return "a tensor is empty"
    if min(call.q.shape[-1], call.v.shape[-1]) < CHANNELS:
        return f"a head has fewer than {CHANNELS} channels"
    return table_refused(call)


def flexed(call: Call, attention: Callable[..., Tensor]) -> Outputs:
    """The attention by `flex_attention`, or by what it was compiled to."""
    where, device = call.where, call.q.device
    rows = where.rows if where.rows > 1 else None
    seen = (
        None if where.sees_all else create_block_mask(mask_mod(where), rows, None, *where.shape, device=str(device))
    )
    grouped = call.groups > 1
    return attention(
        call.q, call.k, call.v, score_mod=score_mod(call.at), block_mask=seen, scale=call.scale, enable_gqa=grouped
    )


@cache
def compiled(form: Hashable) -> Callable[..., Tensor]:
    """A compiled `flex_attention` for calls of this form alone."""

    def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return flex_attention(q, k, v, **options)

    # torch.compile counts what it has compiled by code, and past a limit would go on uncompiled, with queries x keys
    # in memory: each form has code of its own, and fullgraph makes the limit an error
    attention.__code__ = attention.__code__.replace(co_name=f"attention_{hash(form) & 0xFFFFFFFF:x}")
    return torch.compile(attention, fullgraph=True)
