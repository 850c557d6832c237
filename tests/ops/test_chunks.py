import pytest
import torch

from ordinate.ops import chunks
from ordinate.testing.tolerance import assert_as_close


def drawn(tokens, dtype=torch.float64, peaks=False):
    shapes = (2, 3, tokens, 4), (2, 3, tokens, 4), (2, 3, tokens, 5), (2, 3, 4, 5)
    inputs = [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]
    # some stay and some leap, as the highest number so far does
    steps = (3 * torch.randn(2, 3, tokens + 1, dtype=torch.float64)).clamp(min=0).cumsum(-1).to(dtype)
    return inputs, steps if peaks else None


def by_the_formula(q, k, v, sums, peaks=None):
    """Token by token."""
    outs = []
    for token in range(q.shape[2]):
        if peaks is not None:
            sums = sums * (peaks[:, :, token] - peaks[:, :, token + 1]).exp()[..., None, None]
        sums = sums + k[:, :, token, :, None] * v[:, :, token, None]
        outs.append(q[:, :, token, None] @ sums)
    return torch.cat([v[:, :, :0], *outs], 2), sums


def found(compute, inputs, peaks):
    made = compute(*inputs, peaks)
    loss = sum((x * torch.arange(1, x.numel() + 1).view(x.shape).sin()).sum() for x in made)
    return [*made, *torch.autograd.grad(loss, inputs)]


@pytest.mark.covering(1)
@pytest.mark.parametrize("faded", [False, True])
@pytest.mark.parametrize("tokens", [1, 5, 63, 64, 129])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_chunks_are_the_sums_token_by_token(tokens, faded, dtype):
    inputs, peaks = drawn(tokens, dtype, faded)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = found(by_the_formula, wide, None if peaks is None else peaks.double())
    plain = found(by_the_formula, inputs, peaks)
    for place, (out, usual, true) in enumerate(
        zip(found(chunks.linear_attention, inputs, peaks), plain, exact, strict=True)
    ):
        assert_as_close(out, usual, true, factor=3.0, what=f"result {place}")


def test_no_tokens_leave_the_sums_as_they_were():
    inputs, _ = drawn(0)
    out, sums = chunks.linear_attention(*inputs)
    assert out.shape == (2, 3, 0, 5)
    assert sums is inputs[3]


@pytest.mark.parametrize("faded", [False, True])
def test_gradients_are_those_of_finite_differences(faded, monkeypatch):
    monkeypatch.setattr(chunks, "CPU_CHUNK", 3)
    inputs, peaks = drawn(7, peaks=faded)
    inputs = [x.detach()[:1, :1].requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(
        lambda *x: chunks.linear_attention(*x, None if peaks is None else peaks[:1, :1]), inputs
    )


def test_a_leap_far_beyond_floating_point_reaches_nothing_before_it():
    inputs, _ = drawn(6, torch.float32)
    level = torch.zeros(2, 3, 7)
    calm, _ = chunks.linear_attention(*inputs, level)
    level[:, :, 5:] = 1e4
    out, sums = chunks.linear_attention(*inputs, level)
    assert torch.equal(out[:, :, :4], calm[:, :, :4])
    assert torch.isfinite(out).all()
    assert torch.isfinite(sums).all()
