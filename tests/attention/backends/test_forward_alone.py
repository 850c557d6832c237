"""Short forward passes on processors of Intel's, where PyTorch's own attention is as fast as the C++ kernels."""

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention import _few_pairs
from ordinate.ops.native import build
from ordinate.schemes import Alibi, Cope, Fire, NoPosition, Shaw


@pytest.fixture(params=[True, False], ids=["Intel", "AMD"])
def intel(request, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    reason = build.unavailable_reason("attention")
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr(_few_pairs, "onednn_is_faster", lambda: not request.param)
    return request.param


@pytest.mark.parametrize(
    ("scheme", "where", "type", "faster"),
    [
        (Alibi(heads=2), Geometry.causal(90), torch.float32, "native"),
        (Alibi(heads=2), Geometry.full(90), torch.bfloat16, "native"),
        (NoPosition(), Geometry.full(180), torch.float32, "native"),
        (NoPosition(), Geometry.full(720), torch.bfloat16, "native"),
        (Fire(heads=2), Geometry.causal(90), torch.float32, "dense_bias"),
        (Fire(heads=2), Geometry.full(1100), torch.float32, "dense_bias"),
        (Cope(head_width=16), Geometry.full(90), torch.float32, "dense_bias"),
    ],
)
def test_pytorch_computes_a_short_forward_pass_on_intel(scheme, where, type, faster, intel):
    q = torch.randn(6, 2, where.shape[0], 16).to(type)
    with torch.no_grad():
        found = explain(q, q, q, scheme.at(where))
        assert found.backend == ("sdpa" if intel else faster)
        # a backend that is named is taken
        assert explain(q, q, q, scheme.at(where), backend=faster).backend == faster
        ours, named = (attend(q, q, q, scheme.at(where), backend=way).float() for way in (None, faster))
    torch.testing.assert_close(ours, named, atol=3e-2 if type == torch.bfloat16 else 1e-5, rtol=0)
    # what is trained stays
    assert explain(q.clone().requires_grad_(), q, q, scheme.at(where)).backend == faster


@pytest.mark.parametrize(
    ("scheme", "where", "type", "backend"),
    [
        (Alibi(heads=2), Geometry.causal(91), torch.float32, "native"),
        (NoPosition(), Geometry.full(182), torch.float32, "native"),
        (NoPosition(), Geometry.causal(720), torch.bfloat16, "native"),
        (NoPosition(), Geometry.full(725), torch.bfloat16, "native"),
        (Fire(heads=2), Geometry.causal(91), torch.float32, "dense_bias"),
        (Fire(heads=2), Geometry.full(1300), torch.float32, "dense_bias"),
        (Cope(head_width=16), Geometry.full(91), torch.float32, "dense_bias"),
        (Shaw(heads=2, head_width=16), Geometry.full(90), torch.float32, "dense_bias"),
    ],
)
def test_longer_ones_are_computed_in_cpp(scheme, where, type, backend, intel):
    q = torch.randn(6, 2, where.shape[0], 16).to(type)
    with torch.no_grad():
        assert explain(q, q, q, scheme.at(where)).backend == backend
