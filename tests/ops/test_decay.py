import pytest
import torch

from ordinate.ops.decay import decaying_linear_attention
from ordinate.ops.native import build, scan
from ordinate.testing import assert_as_close
from ordinate.testing.assert_close import assert_max_close


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("recurrence")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def native_on(_compiler, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)


def loop(r, k, v, w, bonus, state):
    """Equation 19 of the paper, one token after another."""
    means = []
    for t in range(r.shape[2]):
        written = k[:, :, t, :, None] * v[:, :, t, None]
        means.append((r[:, :, t, :, None] * (state + bonus[:, :, None] * written)).sum(2))
        state = torch.exp(w[:, :, t, :, None]) * state + written
    return torch.stack(means, 2), state


def draw(tokens, width=8, depth=8, strong=False):
    def tensor(channels):
        # as projections leave them: the heads of a token side by side
        return torch.randn(2, tokens, 3, channels).transpose(1, 2)

    w = -torch.exp(3 * tensor(width)) if strong else -torch.exp(tensor(width) - 2)
    k = tensor(width) / width**0.5
    return tensor(width), k, tensor(depth), w, torch.randn(3, width), torch.randn(2, 3, width, depth)


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
            # two hundred roundings, one after another
            assert_max_close(one, other, 2e-6, f"result {place}")


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 7, 63, 64, 65, 130])
def test_it_agrees_with_the_recurrence(tokens, strong, dtype):
    assert_agrees(decaying_linear_attention, loop, draw(tokens, strong=strong), dtype)


@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize(
    ("tokens", "width", "depth"), [(1, 4, 4), (7, 16, 16), (70, 33, 20), (33, 64, 64), (65, 8, 100)]
)
def test_in_cpp_it_agrees_with_the_recurrence(tokens, width, depth, strong, native_on):
    assert_agrees(decaying_linear_attention, loop, draw(tokens, width, depth, strong), torch.float32)


@pytest.mark.parametrize("where", ["plain", "native"])
def test_in_pieces_it_is_the_same(where, request):
    if where == "native":
        request.getfixturevalue("native_on")
    *views, bonus, state = draw(140)
    whole, end = decaying_linear_attention(*views, bonus, state)
    means = []
    for piece in zip(*(x.split([90, 1, 0, 49], 2) for x in views), strict=True):
        y, state = decaying_linear_attention(*piece, bonus, state)
        means.append(y)
    torch.testing.assert_close(torch.cat(means, 2), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, end, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", ["plain", "native"])
def test_what_is_no_number_stays_none(where, request):
    if where == "native":
        request.getfixturevalue("native_on")
    for place in range(1, 4):
        inputs = draw(40)
        inputs[place][0, 1, 20, 3] = float("nan")
        y, _ = decaying_linear_attention(*inputs)
        assert y[0, 1, 21:].isnan().any(-1).all()
        assert y[0, 0].isfinite().all()
        assert y[1].isfinite().all()


def test_its_gradients_are_right():
    inputs = [x.double().requires_grad_() for x in draw(5, 2, 3)]
    assert torch.autograd.gradcheck(decaying_linear_attention, inputs, fast_mode=True)


def test_autocast_does_not_narrow_it():
    inputs = draw(70)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = decaying_linear_attention(*inputs)
    assert torch.equal(y, decaying_linear_attention(*inputs)[0])


def test_what_does_not_fit_is_refused(untyped):
    r, k, v, w, bonus, start = draw(9)
    for inputs, match in (
        (
            (r, k[:, :, 1:], v, w, bonus, start),
            r"k must have .*; got shape \(2, 3, 8, 8\), expected \(2, 3, 9, 8\)",
        ),
        ((r, k, v[:1], w, bonus, start), "v must"),
        ((r, k, v, w[:, :1], bonus, start), "w must"),
        ((r, k, v, w, bonus[1:], start), "bonus must"),
        ((r, k, v, w, bonus, start[:1]), r"start must .* got shape \(1, 3, 8, 8\)"),
    ):
        with pytest.raises(ValueError, match=match):
            decaying_linear_attention(*inputs)
