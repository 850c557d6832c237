"""However attention is computed, the scheme says the same."""

import torch
from torch import Tensor

from ordinate.attention import ROUTES, attend, explain
from ordinate.geometry import Geometry
from ordinate.scheme import Placed, Scheme
from ordinate.testing.case import Case, drawn
from ordinate.testing.tolerance import assert_as_close


def every_route_agrees_with_the_reference(case: Case) -> None:
    """Outputs and the gradients of queries, keys, values and parameters, for every route that takes the call."""
    scheme = case.scheme()
    padded = Geometry.padded(torch.arange(7)[None] >= torch.tensor([[3], [0]]))
    for where in (Geometry.causal(7), Geometry.full(7), Geometry.causal(7, window=3), padded):
        at = scheme.at(case.place(where))
        exact = _run(scheme, at, "reference")
        for route in ROUTES:
            if ROUTES[route].order <= ROUTES["reference"].order and _takes(at, route):
                made = _run(scheme, at, route)
                for name, one, other in zip(("output", "q", "k", "v"), made, exact, strict=False):
                    assert_as_close(one, other, other, what=f"the {name} by {route}")
                for one, other in zip(made[4:], exact[4:], strict=True):
                    assert_as_close(one, other, other, what=f"a parameter's gradient by {route}")


def what_is_made_for_all_layers_marks_as_the_hooks_do(case: Case) -> None:
    """`encoders` gives queries and keys what `encode_query` and `encode_key` give them, in the second layer too."""
    case.need_hook("encode_query", "encode_key")
    scheme, where = case.scheme(), case.place(Geometry.causal(7))
    q, k, _ = drawn(2, 7)
    at = scheme.at(where)
    expected = scheme.encode_query(q, at.where.q_pos), scheme.encode_key(k, at.where.q_pos)
    for layer in range(2):
        for name, one, other in zip(("queries", "keys"), at.encode(q, k), expected, strict=True):
            assert one.equal(other), f"the {name} of layer {layer} are marked otherwise"


def _takes(at: Placed, route: str) -> bool:
    q, k, v = drawn(2, 7)
    try:
        explain(*at.encode(q, k), v, at, route=route)
    except ValueError:
        return False
    return True


def _run(scheme: Scheme, at: Placed, route: str) -> list[Tensor]:
    # placed anew: what is remembered of one pass must not serve the next
    at = scheme.at(at.where)
    leaves = [part.requires_grad_() for part in drawn(2, 7)]
    q, k, v = leaves
    out = attend(*at.encode(q, k), v, at, route=route)
    wanted = [*leaves, *(parameter for parameter in scheme.parameters() if parameter.requires_grad)]
    slopes = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
    zeros = [torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(wanted, slopes, strict=True)]
    return [out.detach(), *zeros]
