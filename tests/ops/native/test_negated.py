"""Kernels compute the same from tensors that PyTorch negates as they are read: `torch._neg_view`."""

import pytest
import torch

from ordinate import Geometry, attend, mixers
from ordinate.attention.backends import decode, native
from ordinate.ops import linear_layer, mlp_bias, rotate
from ordinate.ops.gelu import gelu
from ordinate.ops.native import build, scan
from ordinate.ops.native.transpose import transposed_copy
from ordinate.ops.rms_norm import RMSNorm
from ordinate.schemes import Alibi, NoPosition

TOKENS, HEADS, WIDTH = 70, 2, 32
ANGLES = torch.arange(TOKENS * WIDTH / 2, dtype=torch.float64).reshape(1, TOKENS, -1)


def attention(x):
    return attend(x, 2 * x, 3 * x, NoPosition().at(Geometry.causal(TOKENS)), backend="native")


def few_queries(x):
    with torch.no_grad():
        return attend(x[:, :, -1:], x, x, Alibi(heads=HEADS).at(Geometry.causal(1, cached=TOKENS - 1)))


def few_vectors(x):
    with torch.no_grad():
        return linear_layer.linear(x[0, 0, :3], -x[0, 1])


def lines(x):
    torch.manual_seed(0)
    inner, outer = torch.nn.Linear(1, 7), torch.nn.Linear(7, 3)
    return mlp_bias.scalar_relu_mlp(x.double().flatten(0, 1), inner, outer, torch.float32)


def mixer(kind, **sizes):
    torch.manual_seed(0)
    made = kind(width=WIDTH, **sizes)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return lambda x: made(x.flatten(0, 1), NoPosition().at(Geometry.causal(TOKENS)))[0]


CASES = {
    "attention": (attention, {"attention", "largest"}),
    "few queries": (few_queries, {"decode"}),
    "few vectors": (few_vectors, {"linear"}),
    "rotation": (lambda x: rotate.rotate(x, ANGLES, "half"), {"rotation"}),
    "rows": (lambda x: gelu(RMSNorm(WIDTH)(x)), {"rms_norm", "gelu"}),
    "gelu": (gelu, {"gelu"}),
    "transpose": (lambda x: transposed_copy(x[0, 0]).requires_grad_(), {"transpose"}),
    "lines": (lines, {"piecewise_linear"}),
    "performer": (mixer(mixers.Performer, heads=HEADS), {"performer"}),
    "rwkv4": (mixer(mixers.Rwkv4), {"wkv"}),
    "rwkv6": (mixer(mixers.Rwkv6, heads=HEADS), {"blend", "recurrence", "gated_norm"}),
    "rwkv7": (mixer(mixers.Rwkv7, heads=HEADS), {"blend", "recurrence", "correction", "gated_norm"}),
}


@pytest.fixture
def called(monkeypatch):
    """Names of the kernels that were called: they are switched on, however small the tensors."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    reason = build.unavailable_reason("attention")
    if reason is not None:
        pytest.skip(reason)
    for module, name in [
        (native, "MIN_PAIRS"),
        (native, "MIN_HEAD_PAIRS"),
        (scan, "MIN_ELEMENTS"),
        (decode, "MIN_CPP_ELEMENTS"),
        (linear_layer, "MIN_ELEMENTS"),
        (rotate, "MIN_NATIVE_ELEMENTS"),
        (mlp_bias, "MIN_NATIVE"),
    ]:
        monkeypatch.setattr(module, name, 0)
    names, load = set(), build.load_kernel
    monkeypatch.setattr("ordinate.ops.native.job.load_kernel", lambda name: names.add(name) or load(name))
    return names


def results(function, x, slope):
    x = x.detach().requires_grad_()
    out = function(x)
    return [out] if out.grad_fn is None else [out, torch.autograd.grad(out, x, slope(out))[0]]


@pytest.mark.parametrize("name", CASES)
def test_negated_tensors(name, called):
    function, kernels = CASES[name]
    x = torch.randn(2, HEADS, TOKENS, WIDTH)
    plain = results(function, x, torch.cos)
    made = results(function, torch._neg_view(-x), lambda out: torch._neg_view(-out.cos()))
    assert called == kernels
    for one, other in zip(made, plain, strict=True):
        assert torch.equal(one, other)
