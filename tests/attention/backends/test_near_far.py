"""The choice of the backend near_far; what it computes in a process of its own, which Triton interprets."""

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ordinate import Geometry, attend, explain
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention.backends import near_far, triton
from ordinate.core.devices import as_if_on
from ordinate.ops.triton import fused
from ordinate.schemes import T5, Shaw
from tests.attention.backends.test_triton import INTERPRETED, installed, pytest_of


@installed
@pytest.mark.extended
def test_both_parts_together_agree_with_the_reference():
    # with the mutants it takes some five minutes
    chosen = "agrees_with or self_check or operators_say or unsupported or explained"
    assert " passed" in pytest_of(INTERPRETED.with_name("near_far_interpreted.py"), "-k", chosen)


def test_without_a_gpu_it_is_refused():
    q, k, v = (torch.zeros(1, 4, 300, 8) for _ in range(3))
    at = T5(heads=4, max_distance=20).at(Geometry.causal(300))
    with pytest.raises(ValueError, match="only GPUs are supported"):
        attend(q, k, v, at, backend="near_far")
    assert "only GPUs are supported" in explain(q, k, v, at).unsupported["near_far"]


def test_it_is_tried_before_the_kernels_for_all_keys():
    assert near_far.NearFar.priority < triton.Triton.priority


def test_the_kernel_of_the_far_keys_is_that_of_the_device(monkeypatch):
    for kind, ours in (("hopper", fused._cudnn), ("blackwell", fused._cudnn), ("ampere", fused._flash)):
        monkeypatch.setattr(fused, "device_class", lambda device, kind=kind: kind)
        assert fused.fused_attention(torch.device("cuda")).forward is ours


def call_on_a_gpu(scheme, tokens, dtype=torch.bfloat16, width=64, scale=0.1):
    with FakeTensorMode():
        q = torch.empty(1, 4, tokens, width, dtype=dtype, device="cuda")
    return AttentionCall(q, q, q, scheme.at(Geometry.causal(tokens)), scale, 0.0, ScoreOptions())


@pytest.mark.parametrize(
    ("scheme", "tokens", "given", "says"),
    [
        (T5(heads=4), 8192, {}, None),
        (Shaw(head_width=64), 2048, {}, None),
        (T5(heads=4), 8191, {}, "faster below 8192 tokens"),
        (Shaw(head_width=64), 2047, {}, "faster below 2048 tokens"),
        (Shaw(head_width=64, past=100), 3000, {}, "faster below 3200 tokens"),
        (T5(heads=4), 8192, {"dtype": torch.float32}, "float32 is not supported"),
        (T5(heads=4), 8192, {"scale": 0.0}, "the scale is not above 0"),
        (T5(heads=4), 8192, {"scale": -0.1}, "the scale is not above 0"),
        (T5(heads=4), 8192, {"width": 60}, "in steps of 8"),
        (T5(heads=4), 8192, {"width": 256}, "8 to 128 channels"),
    ],
)
def test_on_a_gpu_it_takes_long_texts_in_16_bits(scheme, tokens, given, says, monkeypatch):
    monkeypatch.setattr(near_far, "unavailable_reason", lambda device: None)
    monkeypatch.setattr(near_far, "unproved_reason", lambda name, call, kind: None)
    for module in (near_far, fused):
        monkeypatch.setattr(module, "device_class", lambda device: "hopper")
    backend, call = near_far.NearFar(), call_on_a_gpu(scheme, tokens, **given)
    reason = backend.call_unsupported_reason(call)
    assert reason is None if says is None else says in reason
    if says is None:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            assert "switched off" in backend.call_unsupported_reason(call)
        torch.use_deterministic_algorithms(True)
        try:
            assert "no fixed order" in backend.call_unsupported_reason(call)
        finally:
            torch.use_deterministic_algorithms(False)


TRACED = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ordinate import Geometry
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention.backends import near_far
from ordinate.ops.triton import fused
from ordinate.schemes import T5

near_far.unavailable_reason, near_far.unproved_reason = lambda device: None, lambda name, call, kind: None
scheme, where = T5(heads=4), Geometry.causal(8192)


def supported(q):
    call = AttentionCall(q, q, q, scheme.at(where), 0.1, 0.0, ScoreOptions())
    return q if near_far.NearFar().call_unsupported_reason(call) is None else q[:0]


for kind in ("hopper", "ampere"):
    near_far.device_class = fused.device_class = lambda device, kind=kind: kind
    torch.compiler.reset()
    with FakeTensorMode(allow_non_fake_inputs=True):
        q = torch.empty(1, 4, 8192, 64, dtype=torch.bfloat16, device="cuda")
        assert torch.compile(supported, fullgraph=True, backend="eager")(q).shape == q.shape
"""


def test_torch_compile_traces_the_questions_that_a_gpu_is_asked():
    # in a process of its own: the type checks of tests cannot be compiled
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_far_gradients_given_more_keys_are_those_of_the_whole_softmax():
    # the same tensors beside a fixed further key: its weight is part of the log-sum-exp alone
    q, k, v, gradient = (torch.randn(1, 2, 9, 8, dtype=torch.float64) for _ in range(4))
    kernel = fused.fused_attention(q.device)
    out, lse = kernel.forward(q, k, v, 0.5)
    more = torch.randn(1, 2, 9, dtype=torch.float64)
    whole = torch.logaddexp(lse, more)
    made = kernel.backward(gradient, q, k, v, out * (lse - whole).exp()[..., None], whole, 0.5)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    scores = (q @ k.mT * 0.5).masked_fill(torch.ones(9, 9).triu(1).bool(), float("-inf"))
    weights = torch.cat([scores, more[..., None]], -1).softmax(-1)[..., :-1]
    for one, other in zip(made, torch.autograd.grad(weights @ v, leaves, gradient), strict=True):
        torch.testing.assert_close(one, other)


def test_on_what_looks_like_a_gpu_it_still_needs_one():
    q, k, v = (torch.zeros(1, 4, 300, 8) for _ in range(3))
    with as_if_on("cuda"):
        assert explain(q, k, v, T5(heads=4).at(Geometry.causal(300))).backend != "near_far"
