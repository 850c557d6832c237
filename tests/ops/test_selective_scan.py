import pytest
import torch

from ordinate.ops import selective_scan as ops
from ordinate.ops.selective_scan import selective_scan
from ordinate.testing import assert_as_close
from ordinate.testing.assert_close import assert_max_close


def loop(u, step, rate, b, c, state):
    """One token after another."""
    rows = []
    for t in range(u.shape[1]):
        state = torch.exp(-rate * step[:, t, None]) * state + b[:, t, :, None] * u[:, t, None]
        rows.append((c[:, t, :, None] * state).sum(1))
    return torch.stack(rows, 1), state


def draw(tokens, steps=0.5, states=3):
    u, step = torch.randn(2, tokens, 5), steps * torch.rand(2, tokens, 5)
    b, c = torch.randn(2, 2, tokens, states)
    return u, step, 3 * torch.rand(states, 5), b, c, torch.randn(2, states, 5)


def results(function, inputs, dtype, asked):
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    y, state = function(*leaves)
    total = sum((one * up.to(dtype)).sum() for one, up in zip((y, state), asked, strict=True) if up is not None)
    return [y, state, *torch.autograd.grad(total, leaves, materialize_grads=True)]


def assert_agrees(inputs, dtype, asked):
    ours, exact = results(selective_scan, inputs, dtype, asked), results(loop, inputs, torch.float64, asked)
    for place, (one, other) in enumerate(zip(ours, exact, strict=True)):
        if dtype == torch.float64:
            assert_as_close(one, other, other, what=f"result {place}")
        else:
            assert_max_close(one, other, 2e-6, f"result {place}")


@pytest.fixture(params=[2**18, 4 * 30])
def segments(request, monkeypatch):
    """One segment, and one of four tokens after another."""
    monkeypatch.setattr(ops, "CPU_ELEMENTS", request.param)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [1e-4, 0.5, 60.0])
@pytest.mark.parametrize("tokens", [1, 2, 4, 7, 64, 130])
def test_it_agrees_with_the_recurrence(tokens, steps, dtype, segments):
    inputs = draw(tokens, steps)
    assert_agrees(inputs, dtype, (torch.randn_like(inputs[0]), torch.randn_like(inputs[-1])))


@pytest.mark.parametrize("place", [0, 1])
def test_one_result_alone_may_have_a_gradient(place, segments):
    inputs = draw(9)
    asked = [torch.randn_like(inputs[0]), torch.randn_like(inputs[-1])]
    asked[1 - place] = None
    assert_agrees(inputs, torch.float64, asked)


def test_second_derivatives_are_those_of_the_recurrence(segments):
    leaves = [x.double().requires_grad_() for x in draw(11)]
    found = []
    for function in (selective_scan, loop):
        y, end = function(*leaves)
        first = torch.autograd.grad(y.square().sum() + end.square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    for one, other in zip(*found, strict=True):
        assert_as_close(one, other, other)


def test_gradients_of_single_sequences_by_vmap_are_those_of_the_recurrence():
    u, step, rate, b, c, start = (x.double() for x in draw(9))

    def of(function):
        def total(rate, *one):
            u, step, b, c, start = (x[None] for x in one)
            return function(u, step, rate, b, c, start)[0].square().sum()

        return torch.func.vmap(torch.func.grad(total), (None, 0, 0, 0, 0, 0))(rate, u, step, b, c, start)

    exact = of(loop)
    assert_as_close(of(selective_scan), exact, exact)


@torch.no_grad()
def test_text_in_parts_continues_from_the_state(segments):
    u, step, rate, b, c, start = (x.double() for x in draw(23))
    whole, end = selective_scan(u, step, rate, b, c, start)
    rows, state = [], start
    for part in (slice(0, 1), slice(1, 10), slice(10, 10), slice(10, 23)):
        row, state = selective_scan(u[:, part], step[:, part], rate, b[:, part], c[:, part], state)
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows, 1), whole)
    torch.testing.assert_close(state, end)


def test_only_one_state_for_each_segment_is_kept(monkeypatch):
    monkeypatch.setattr(ops, "CPU_ELEMENTS", 4 * 30)
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: held.append(x.numel()) or x, lambda x: x):
        y, _ = selective_scan(*(x.requires_grad_() for x in draw(64)))
    assert max(held) == 64 * 2 * 5
    assert [state.numel() for state in y.grad_fn.kept] == [30] * 16


def test_what_does_not_fit_is_refused(untyped):
    u, step, rate, b, c, start = draw(9)
    with pytest.raises(ValueError, match=r"step must have .* of the other inputs; got shape \(2, 8, 5\)"):
        selective_scan(u, step[:, 1:], rate, b, c, start)
    with pytest.raises(ValueError, match=r"rate must have .*; got shape \(3, 4\), expected \(3, 5\)"):
        selective_scan(u, step, rate[:, 1:], b, c, start)
    with pytest.raises(ValueError, match=r"start must have .*; got shape \(1, 3, 5\), expected \(2, 3, 5\)"):
        selective_scan(u, step, rate, b, c, start[:1])
