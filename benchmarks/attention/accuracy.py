"""How far results are from the formula in float64, beside PyTorch's attention on the same tensors."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention.contenders import BASE, Size, make, split
from benchmarks.attention.measuring import TYPES, Row
from ordinate import Scheme, attend

Compute = Callable[[Tensor, Tensor, Tensor, Scheme], Tensor]
# rows that are compared at the end of a long text
LAST = 64


def accuracy(members: list[str], tokens: int, long: int) -> dict[str, dict[str, Row]]:
    """Errors of output and gradients, as shares of their size, and of the output at the end of a long text.

    Args:
        members: ours, `scheme@route`; PyTorch's attention without a bias comes first.
        tokens: length of a text.
        long: length of a long one, whose last rows are compared: ALiBi skips keys there.
    """
    found = {}
    for name, type in TYPES.items():
        rows = {}
        for member in (BASE, *members):
            scheme, compute = ("none", _plain) if member == BASE else (split(member)[0], _ours(member))
            rows[member] = _errors(scheme, compute, Size(tokens), type)
            if scheme in ("none", "alibi"):
                rows[member]["far"] = _far(scheme, compute, Size(long), type)
        found[name] = rows
    return found


def _plain(q: Tensor, k: Tensor, v: Tensor, marks: Scheme) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def _ours(member: str) -> Compute:
    _, route = split(member)
    return lambda q, k, v, marks: attend(q, k, v, marks.at(Size(q.shape[2]).where), route=route)


def _errors(scheme: str, compute: Compute, size: Size, type: torch.dtype) -> Row:
    marks, inputs = make(scheme, size.heads), size.draw(type, learn=True)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = attend(*wide, deepcopy(marks).double().at(size.where), route="reference")
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
    exact = attend(q[:, :, rows].double(), k.double(), v.double(), at, route="reference")
    return _apart(compute(q, k, v, marks)[:, :, rows], exact)


def _apart(out: Tensor, exact: Tensor) -> float:
    exact = exact.detach()
    return ((out.detach().double() - exact).norm() / exact.norm()).item()
