"""How far results are from the formula in float64, beside PyTorch's attention on the same tensors."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention.contenders import Size, make, split
from benchmarks.attention.measuring import TYPES, Row
from ordinate import Scheme, attend

Compute = Callable[[Tensor, Tensor, Tensor, Scheme], Tensor]
# rows that are compared at the end of a long text
LAST = 64


def accuracy(members: list[str], tokens: int, long: int) -> dict[str, dict[str, Row]]:
    """Errors of output and gradients, as shares of their size, and of the output at the end of a long text.

    Beside each stands the error of PyTorch's attention, with the same bias where it can take it.

    Args:
        members: ours, `scheme@route`.
        tokens: length of a text.
        long: length of a long one, whose last rows are compared: ALiBi skips keys there.
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
    content, bias = marks.content_bias(q.float(), k.float(), where), marks.bias(where)
    mask = sum(x if x is content else x.detach() for x in (content, bias) if x is not None)
    hidden = ~where.visible[:, None]
    mask = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf")) + mask
    return scaled_dot_product_attention(q, k, v, attn_mask=mask if not mask.requires_grad else mask.to(q.dtype))


def _ours(member: str) -> Compute:
    _, route = split(member)

    def compute(q: Tensor, k: Tensor, v: Tensor, marks: Scheme) -> Tensor:
        return attend(q, k, v, marks.at(Size(k.shape[2]).where), route=route)

    return compute


def _errors(scheme: str, compute: Compute, size: Size, type: torch.dtype) -> Row:
    marks, inputs = make(scheme, size.heads), size.draw(type, learn=True)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = attend(*wide, deepcopy(marks).double().at(size.where), route="reference")
    if compute is _pytorch and "carry" in marks.hooks:
        # it cannot carry positions on: the nearest that it can do
        marks, exact = make("none", size.heads), attend(*wide, make("none", 1).at(size.where), route="reference")
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
    # PyTorch would hold a mask of queries x keys: it is asked for the last rows alone
    return _apart(compute(q[:, :, rows] if compute is _pytorch else q, k, v, marks)[:, :, -LAST:], exact)


def _apart(out: Tensor, exact: Tensor) -> float:
    exact = exact.detach()
    return ((out.detach().double() - exact).norm() / exact.norm()).item()
