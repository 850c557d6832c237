"""Agreement of all attention backends and of the cached encoders."""

import torch
from torch import Tensor

from ordinate.attention._attend import BACKENDS, attend_encoded, explain
from ordinate.core.geometry import Geometry
from ordinate.schemes._scheme import Placed, Scheme
from ordinate.testing.case import SchemeCase, random_qkv
from ordinate.testing.tolerance import assert_as_close


def every_backend_agrees_with_the_reference(case: SchemeCase) -> None:
    """Outputs and gradients of queries, keys, values and parameters, for each backend that supports the call."""
    scheme = case.scheme()
    padded = Geometry.padded(torch.arange(7)[None] >= torch.tensor([[3], [0]]))
    for where in (Geometry.causal(7), Geometry.full(7), Geometry.causal(7, window=3), padded):
        at = scheme.at(case.with_axes(where))
        exact = _run(scheme, at, "reference")
        for backend in BACKENDS:
            if BACKENDS[backend].priority <= BACKENDS["reference"].priority and _takes(at, backend):
                made = _run(scheme, at, backend)
                for name, one, other in zip(("output", "q", "k", "v"), made, exact, strict=False):
                    assert_as_close(one, other, other, what=f"the {name} by {backend}")
                for one, other in zip(made[4:], exact[4:], strict=True):
                    assert_as_close(one, other, other, what=f"a parameter's gradient by {backend}")


def cached_encoders_equal_the_encoding_hooks(case: SchemeCase) -> None:
    """Bit for bit, in the second layer too."""
    case.skip_unless_hook("encode_query", "encode_key")
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(7))
    q, k, _ = random_qkv(2, 7)
    at = scheme.at(where)
    expected = scheme.encode_query(q, at.where.q_pos), scheme.encode_key(k, at.where.q_pos)
    for layer in range(2):
        for name, one, other in zip(("queries", "keys"), at.encode(q, k).pair, expected, strict=True):
            assert one.equal(other), f"the {name} of layer {layer} are encoded differently"


def _takes(at: Placed, backend: str) -> bool:
    q, k, v = random_qkv(2, 7)
    try:
        explain(q, k, v, at, backend=backend)
    except ValueError:
        return False
    return True


def _run(scheme: Scheme, at: Placed, backend: str) -> list[Tensor]:
    # bound anew: results cached for one forward pass must not be reused in the next
    at = scheme.at(at.where)
    leaves = [part.requires_grad_() for part in random_qkv(2, 7)]
    q, k, v = leaves
    out = attend_encoded(at.encode_all(q, k), v, at, backend=backend)
    wanted = [*leaves, *(parameter for parameter in scheme.parameters() if parameter.requires_grad)]
    grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
    filled = [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(wanted, grads, strict=True)]
    return [out.detach(), *filled]
