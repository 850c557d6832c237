"""Calls with so few query-key pairs in a head that a backend leaves them to others."""

import math

import torch

from ordinate.attention._backend import AttentionCall
from ordinate.core.devices import on_cpu
from ordinate.ops.matmul import onednn_is_faster


def few_head_pairs(call: AttentionCall, fewest: int) -> str | None:
    """Return that a head has fewer query-key pairs than this, on a CPU; None if not.

    Not asked while torch.compile traces, which would compile for each such limit, and can trace no backend with one.
    """
    few = not torch.compiler.is_compiling() and on_cpu(call.q) and math.prod(call.where.shape) < fewest
    return f"other ways are faster with fewer than {fewest} query-key pairs in a head" if few else None


def few_forward_pairs(call: AttentionCall, fewest: int) -> str | None:
    """Return that a head has fewer query-key pairs than this in a forward pass alone, on a processor of Intel's.

    There PyTorch's own attention is nearer to the speed of matrix products, and its forward pass to that of the C++
    kernels, than on AMD's. None: more pairs, or something has gradients, or another processor.
    """
    if torch.compiler.is_compiling() or onednn_is_faster() or call.learns:
        return None
    return few_head_pairs(call, fewest)
