"""Dtypes and numerical precision of the hooks."""

import copy

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.schemes._scheme import Scheme
from ordinate.testing.case import HEADS, KV_HEADS, MAX_LENGTH, SchemeCase, hook_outputs, random_qkv

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
DTYPE_PRESERVING = ("embed", "encode_query", "encode_key", "value_bias")


def outputs_have_the_dtype_of_the_inputs(case: SchemeCase) -> None:
    """For four dtypes, with parameters of the same dtype or in float32."""
    case.skip_unless_hook(*DTYPE_PRESERVING)
    where = case.with_axes(Geometry.causal(5))
    for dtype in DTYPES:
        for own in (dtype, torch.float32):
            for hook, out in hook_outputs(case.scheme(own), where, dtype).items():
                expected = out.dtype if hook not in DTYPE_PRESERVING else dtype
                assert out.dtype == expected, f"{hook} turns {dtype} into {out.dtype}, parameters in {own}"


def low_precision_adds_rounding_errors_only(case: SchemeCase) -> None:
    """Each hook agrees with itself in float64 up to a few rounding errors, at large positions too."""
    case.skip_unless_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias")
    far = MAX_LENGTH - 5 if case.scheme().max_length is not None else 2**24 + 1
    where = case.with_axes(Geometry.from_positions(torch.tensor([0, 1, 2, 3, 4])[None, :, None] + far))
    for dtype in DTYPES:
        scheme = case.scheme(dtype)
        truth = _rounded_inputs(case, copy.deepcopy(scheme).double(), where, dtype)
        for hook, marked in hook_outputs(scheme, where, dtype).items():
            exact = truth.get(hook)
            if exact is None:
                continue
            # scores are not stored in the dtype of the model, so biases may be more precise
            step = torch.finfo(dtype if hook in DTYPE_PRESERVING else marked.dtype).eps
            # values too large for the dtype round to infinity
            held = exact.abs() <= torch.finfo(marked.dtype).max
            error = torch.where(held, marked.double() - exact, 0).abs().max().item()
            allowed = 4 * max(step, 1e-12 if dtype == torch.float64 else 0.0) * max(exact.abs().max().item(), 1)
            assert error <= allowed, (
                f"{hook} in {dtype} is off by {error:.2g} at position {far}, allowed {allowed:.2g}"
            )


def inputs_are_not_modified(case: SchemeCase) -> None:
    """No hook writes into its inputs."""
    case.skip_unless_hook("embed", "encode_query", "encode_key")
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(5))
    x, (q, k, _) = case.embeddings(1, 5), random_qkv(1, 5)
    pos = where.q_pos.clone()
    for name, tokens in (("embed", x), ("encode_query", q), ("encode_key", k)):
        before = tokens.clone()
        getattr(scheme, name)(tokens, where.q_pos)
        assert tokens.equal(before), f"{name} writes into its input"
        assert where.q_pos.equal(pos), f"{name} writes into the positions"


def _rounded_inputs(case: SchemeCase, exact: Scheme, where: Geometry, dtype: torch.dtype) -> dict[str, Tensor | None]:
    # the exact result for the rounded inputs, not for those before rounding
    x, (q, k, _) = case.embeddings(1, 5, dtype).double(), (part.double() for part in random_qkv(1, 5, dtype))
    full = k.repeat_interleave(HEADS // KV_HEADS, 1)
    return {
        "embed": exact.embed(x, where.q_pos),
        "encode_query": exact.encode_query(q, where.q_pos),
        "encode_key": exact.encode_key(k, where.q_pos),
        "score": exact.score(q, full, where),
        "bias": exact.bias(where),
        "content_bias": exact.content_bias(q, full, where),
    }
