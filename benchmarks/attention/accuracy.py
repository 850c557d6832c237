"""Numerical error against the reference in float64, compared with PyTorch's attention on the same tensors."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention.contenders import Size, make, split
from benchmarks.harness.workload import TYPES, Row
from ordinate import attend
from ordinate.schemes import Scheme

Compute = Callable[[Tensor, Tensor, Tensor, Scheme], Tensor]
# queries at the end of a long sequence that are compared
LAST = 64


def accuracy(members: list[str], tokens: int, long: int) -> dict[str, dict[str, Row]]:
    """Relative errors of output and gradients, and of the output at the end of a long sequence.

    Each row also has the errors of PyTorch's attention, with the same bias where that is possible.

    Args:
        members: our contenders, `scheme@backend`.
        tokens: sequence length.
        long: length of the long sequence, whose last queries are compared: ALiBi skips keys there.
    """
    found: dict[str, dict[str, Row]] = {}
    for name, type in TYPES.items():
        usual: dict[str, Row] = {}
        found[name] = {}
        for member in members:
            scheme, _ = split(member)
            if scheme not in usual:
                usual[scheme] = _all(scheme, _pytorch, tokens, long, type)
            errors = _all(scheme, _ours(member), tokens, long, type)
            found[name][member] = errors | {f"{kind} of sdpa": error for kind, error in usual[scheme].items()}
    return found


def _all(scheme: str, compute: Compute, tokens: int, long: int, type: torch.dtype) -> Row:
    errors = _errors(scheme, compute, Size(tokens), type)
    return errors | {"far": _far(scheme, compute, Size(long), type)} if scheme == "alibi" else errors


def _pytorch(q: Tensor, k: Tensor, v: Tensor, marks: Scheme) -> Tensor:
    where = Size(k.shape[2]).where.block(slice(k.shape[2] - q.shape[2], None))
    q, k = marks.at(where).encode_all(q, k).pair
    content, bias = marks.content_bias(q.float(), k.float(), where), marks.bias(where)
    mask = sum(x if x is content else x.detach() for x in (content, bias) if x is not None)
    hidden = ~where.visible[:, None]
    mask = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf")) + mask
    return scaled_dot_product_attention(q, k, v, attn_mask=mask if not mask.requires_grad else mask.to(q.dtype))


def _ours(member: str) -> Compute:
    _, backend = split(member)

    def compute(q: Tensor, k: Tensor, v: Tensor, marks: Scheme) -> Tensor:
        return attend(q, k, v, marks.at(Size(k.shape[2]).where), backend=backend)

    return compute


def _errors(scheme: str, compute: Compute, size: Size, type: torch.dtype) -> Row:
    marks, inputs = make(scheme, size.heads), size.draw(type, learn=True)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = attend(*wide, deepcopy(marks).double().at(size.where), backend="reference")
    if compute is _pytorch and "value_bias" in marks.hooks:
        # PyTorch has no value-side relative terms: compare with attention without positions
        marks, exact = make("none", size.heads), attend(*wide, make("none", 1).at(size.where), backend="reference")
    out = compute(*inputs, marks)
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, inputs, upstream)
    true = torch.autograd.grad(exact, wide, upstream.double())
    return {
        "output": _apart(out, exact),
        "gradient": max(_apart(a, b) for a, b in zip(found, true, strict=True)),
    }


@torch.no_grad()
def _far(scheme: str, compute: Compute, size: Size, type: torch.dtype) -> float:
    rows, marks = slice(size.tokens - LAST, None), make(scheme, size.heads)
    q, k, v = size.draw(type, learn=False)
    at = deepcopy(marks).double().at(size.where).block(rows)
    exact = attend(q[:, :, rows].double(), k.double(), v.double(), at, backend="reference")
    # PyTorch needs a mask of queries x keys: compute only the last queries with it
    return _apart(compute(q[:, :, rows] if compute is _pytorch else q, k, v, marks)[:, :, -LAST:], exact)


def _apart(out: Tensor, exact: Tensor) -> float:
    exact = exact.detach()
    return ((out.detach().double() - exact).norm() / exact.norm()).item()
