"""Types come out as they went in, and low precision costs rounding only."""

import copy

import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.scheme import Scheme
from ordinate.testing.case import HEADS, KV_HEADS, MAX_LENGTH, Case, drawn, marks

TYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
GIVEN_BACK = ("embed", "encode_query", "encode_key", "carry")


def outputs_have_the_type_of_the_inputs(case: Case) -> None:
    """In each of four types, whether the parameters have it too or stay in float32."""
    case.need_hook(*GIVEN_BACK)
    where = case.place(Geometry.causal(5))
    for dtype in TYPES:
        for own in (dtype, torch.float32):
            for hook, out in marks(case.scheme(own), where, dtype).items():
                expected = out.dtype if hook not in GIVEN_BACK else dtype
                assert out.dtype == expected, f"{hook} turns {dtype} into {out.dtype}, parameters in {own}"


def low_precision_costs_rounding_only(case: Case) -> None:
    """Each hook is within a few roundings of itself in float64, at far positions too."""
    case.need_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias")
    far = MAX_LENGTH - 5 if case.scheme().max_length is not None else 2**24 + 1
    where = case.place(Geometry.given(torch.tensor([0, 1, 2, 3, 4])[None, :, None] + far))
    for dtype in TYPES:
        scheme = case.scheme(dtype)
        truth = _rounded_inputs(case, copy.deepcopy(scheme).double(), where, dtype)
        for hook, marked in marks(scheme, where, dtype).items():
            exact = truth.get(hook)
            if exact is None:
                continue
            # scores are not stored in the type of the model: what is added to them may be more precise
            step = torch.finfo(dtype if hook in GIVEN_BACK else marked.dtype).eps
            # a number too large for the type is rounded to infinity
            held = exact.abs() <= torch.finfo(marked.dtype).max
            error = torch.where(held, marked.double() - exact, 0).abs().max().item()
            allowed = 4 * max(step, 1e-12 if dtype == torch.float64 else 0.0) * max(exact.abs().max().item(), 1)
            assert error <= allowed, (
                f"{hook} in {dtype} is off by {error:.2g} at position {far}, allowed {allowed:.2g}"
            )


def inputs_are_left_as_they_were(case: Case) -> None:
    """No hook writes into what it is given."""
    case.need_hook("embed", "encode_query", "encode_key")
    scheme, where = case.scheme(), case.place(Geometry.causal(5))
    x, (q, k, _) = case.vectors(1, 5), drawn(1, 5)
    pos = where.q_pos.clone()
    for name, tokens in (("embed", x), ("encode_query", q), ("encode_key", k)):
        before = tokens.clone()
        getattr(scheme, name)(tokens, where.q_pos)
        assert tokens.equal(before), f"{name} writes into its input"
        assert where.q_pos.equal(pos), f"{name} writes into the positions"


def _rounded_inputs(case: Case, exact: Scheme, where: Geometry, dtype: torch.dtype) -> dict[str, Tensor | None]:
    # the truth about the inputs as they were rounded, not about the numbers before
    x, (q, k, _) = case.vectors(1, 5, dtype).double(), (part.double() for part in drawn(1, 5, dtype))
    full = k.repeat_interleave(HEADS // KV_HEADS, 1)
    return {
        "embed": exact.embed(x, where.q_pos),
        "encode_query": exact.encode_query(q, where.q_pos),
        "encode_key": exact.encode_key(k, where.q_pos),
        "score": exact.score(q, full, where),
        "bias": exact.bias(where),
        "content_bias": exact.content_bias(q, full, where),
    }
