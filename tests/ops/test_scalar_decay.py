import pytest
import torch

from ordinate.ops.decay import read_after_update
from ordinate.ops.native import build, scan
from ordinate.ops.scalar_decay import scalar_decay_attention
from ordinate.testing import assert_as_close
from ordinate.testing.assert_close import assert_max_close


@pytest.fixture
def native_on(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("recurrence") is not None:
        pytest.skip(build.unavailable_reason("recurrence"))
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)


def loop(q, k, v, logs, state):
    """One token after another; the decay has an axis for channels, of size 1 if they share it."""
    means = []
    for t in range(q.shape[2]):
        state = torch.exp(logs[:, :, t, :, None]) * state + k[:, :, t, :, None] * v[:, :, t, None]
        means.append((q[:, :, t, :, None] * state).sum(2))
    return torch.stack(means, 2), state


def scalar_loop(q, k, v, logs, state):
    repeats = v.shape[1] // q.shape[1]
    return loop(*(x.repeat_interleave(repeats, 1) for x in (q, k)), v, logs[..., None], state)


def draw(tokens, groups, strong, per_channel=False):
    q, k = (torch.randn(2, groups, tokens, 5) for _ in range(2))
    logs = -(60 if strong else 0.5) * torch.rand(2, 4, tokens, *(5,) * per_channel)
    return q, k, torch.randn(2, 4, tokens, 9), logs, torch.randn(2, 4, 5, 9)


def results(function, inputs, dtype, asked):
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    y, state = function(*leaves)
    total = (y * asked[0].to(dtype)).sum() + (state * asked[1].to(dtype)).sum()
    return [y, state, *torch.autograd.grad(total, leaves)]


def assert_agrees(function, reference, inputs, dtype):
    asked = torch.randn_like(inputs[2]), torch.randn_like(inputs[-1])
    ours, exact = results(function, inputs, dtype, asked), results(reference, inputs, torch.float64, asked)
    for place, (one, other) in enumerate(zip(ours, exact, strict=True)):
        if dtype == torch.float64:
            assert_as_close(one, other, other, what=f"result {place}")
        else:
            assert_max_close(one, other, 2e-6, f"result {place}")


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("groups", "strong"), [(4, False), (1, True), (2, False)])
@pytest.mark.parametrize("tokens", [1, 2, 7, 64, 65, 130])
def test_it_agrees_with_the_recurrence(tokens, groups, strong, dtype):
    assert_agrees(scalar_decay_attention, scalar_loop, draw(tokens, groups, strong), dtype)


@pytest.mark.parametrize("groups", [1, 4])
def test_in_cpp_it_agrees_with_the_recurrence(groups, native_on):
    assert_agrees(scalar_decay_attention, scalar_loop, draw(70, groups, strong=True), torch.float32)


@pytest.mark.parametrize("strong", [False, True])
def test_with_a_decay_of_each_channel_it_agrees_with_the_recurrence(strong):
    assert_agrees(read_after_update, loop, draw(67, 4, strong, per_channel=True), torch.float64)


def test_second_derivatives_are_those_of_the_recurrence():
    # in float64, where no C++ is used: its derivatives are tested with the recurrences
    leaves = [x.double().requires_grad_() for x in draw(66, 2, strong=False)]
    found = []
    for function in (scalar_decay_attention, scalar_loop):
        first = torch.autograd.grad(function(*leaves)[0].square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    for one, other in zip(*found, strict=True):
        assert_as_close(one, other, other)


def test_what_does_not_fit_is_refused(untyped):
    q, k, v, logs, start = draw(9, 2, strong=False)
    with pytest.raises(ValueError, match="groups of queries must divide the heads; got 2 and 3"):
        scalar_decay_attention(q, k, v[:, :3], logs[:, :3], start[:, :3])
    with pytest.raises(ValueError, match="logs must have the batch, tokens and heads of the other inputs"):
        scalar_decay_attention(q, k, v, logs[:, :1], start)
