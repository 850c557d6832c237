"""PyTorch's fused causal attention with its log-sum-exp, and its gradients given those of a softmax over more keys.

Each kernel computes the weights again as exp(score - log-sum-exp), and what the softmax passes back from the output.
So given the output and the log-sum-exp over all keys it gives the gradients of the part that its own keys have.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ordinate.ops.heads import repeat_keys
from ordinate.ops.triton.tiles import device_class

aten = torch.ops.aten


class Fused(NamedTuple):
    """A fused kernel of causal attention, with as many queries as keys and without dropout.

    Args:
        forward: returns output and log-sum-exp (batch, heads, queries) of q, k, v and the scale.
        backward: returns the gradients of q, k and v from that of the output, q, k, v, output, log-sum-exp and scale.
    """

    forward: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]


def fused_attention(device: torch.device) -> Fused:
    """Return the fastest kernel on a device: cuDNN's on NVIDIA GPUs from Hopper on, else FlashAttention."""
    if device.type == "cpu":
        return Fused(_cpu, _cpu_backward)
    return Fused(_cudnn, _cudnn_backward) if prefers_cudnn(device) else Fused(_flash, _flash_backward)


def prefers_cudnn(device: torch.device) -> bool:
    """Whether cuDNN's kernel is the fastest on a GPU."""
    return device_class(device) in ("hopper", "blackwell")


def _cpu(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    # for tests beside Triton's interpreter; it has no groups of heads
    k, v = (repeat_keys(x, q.shape[1]) for x in (k, v))
    return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=scale)


def _cpu_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    # the kernel reads it in this order in memory
    lse, groups = lse.transpose(1, 2).contiguous().transpose(1, 2), q.shape[1] // k.shape[1]
    k, v = (repeat_keys(x, q.shape[1]) for x in (k, v))
    dq, dk, dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, q, k, v, out, lse, 0.0, True, scale=scale
    )
    return dq, *(x.unflatten(1, (-1, groups)).sum(2) for x in (dk, dv))


def _cudnn(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    found = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True, False, scale=scale)
    return found[0], found[1].squeeze(-1)


def _cudnn_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    # of dropout, which is off
    seed = torch.empty((), dtype=torch.int64, device=q.device)
    sizes = None, None, q.shape[2], k.shape[2], 0.0, True
    return aten._scaled_dot_product_cudnn_attention_backward(
        gradient, q, k, v, out, lse[..., None], seed, seed, None, *sizes, scale=scale
    )


def _flash(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)[:2]


def _flash_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    # of dropout, which is off
    seed = torch.empty(2, dtype=torch.uint64, device=q.device)
    sizes = None, None, q.shape[2], k.shape[2], 0.0, True
    return aten._scaled_dot_product_flash_attention_backward(
        gradient, q, k, v, out, lse, *sizes, seed, seed, scale=scale
    )
