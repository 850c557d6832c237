import pytest
import torch
from torch.nn.functional import normalize

from ordinate.ops.delta_rule import delta_rule, gated_delta_rule
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


def loop(r, k, v, w, a, b, state):
    """Equation 17 of the paper, one token after another, the state with a row for each channel of the keys."""
    means = []
    for t in range(r.shape[2]):
        saw = (a[:, :, t, :, None] * state).sum(2)
        state = torch.exp(w[:, :, t, :, None]) * state
        state = state + b[:, :, t, :, None] * saw[:, :, None] + k[:, :, t, :, None] * v[:, :, t, None]
        means.append((r[:, :, t, :, None] * state).sum(2))
    return torch.stack(means, 2), state


def draw(tokens, width=8, depth=8, strong=False):
    def tensor(channels):
        # as projections leave them: the heads of a token side by side
        return torch.randn(2, tokens, 3, channels).transpose(1, 2)

    w = -torch.exp(3 * tensor(width)) if strong else -0.6065 * torch.sigmoid(tensor(width))
    erased = normalize(tensor(width), dim=-1)
    moved = erased * torch.sigmoid(tensor(width))
    k = tensor(width) / width**0.5
    return tensor(width), k, tensor(depth), w, -erased, moved, torch.randn(2, 3, width, depth)


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
    assert_agrees(delta_rule, loop, draw(tokens, strong=strong), dtype)


@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize(
    ("tokens", "width", "depth"), [(1, 4, 4), (7, 16, 16), (70, 33, 20), (33, 64, 64), (65, 8, 100)]
)
def test_in_cpp_it_agrees_with_the_recurrence(tokens, width, depth, strong, native_on):
    assert_agrees(delta_rule, loop, draw(tokens, width, depth, strong), torch.float32)


@pytest.mark.parametrize("where", ["plain", "native"])
def test_in_pieces_it_is_the_same(where, request):
    if where == "native":
        request.getfixturevalue("native_on")
    *views, state = draw(140)
    whole, end = delta_rule(*views, state)
    means = []
    for piece in zip(*(x.split([90, 1, 0, 49], 2) for x in views), strict=True):
        y, state = delta_rule(*piece, state)
        means.append(y)
    torch.testing.assert_close(torch.cat(means, 2), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, end, rtol=1e-4, atol=1e-5)


def test_what_is_written_at_a_key_is_what_is_read_there():
    """The delta rule that erases all: the newest value of each address, overwriting the previous one."""
    address = torch.eye(4, dtype=torch.float64)[[0, 1, 0, 2, 1]][None, None]
    values = torch.randn(1, 1, 5, 3, dtype=torch.float64)
    w, start = torch.zeros_like(address), torch.zeros(1, 1, 4, 3, dtype=torch.float64)
    y, state = delta_rule(address, address, values, w, -address, address, start)
    torch.testing.assert_close(y, values)
    torch.testing.assert_close(state[0, 0], torch.stack([*values[0, 0, [2, 4, 3]], torch.zeros(3).double()]))


def test_its_gradients_are_right():
    inputs = [x.double().requires_grad_() for x in draw(5, 2, 3)]
    assert torch.autograd.gradcheck(delta_rule, inputs, fast_mode=True)


def test_what_does_not_fit_is_refused(untyped):
    r, *rest, start = draw(9)
    for place, name in enumerate(("k", "v", "w", "a", "b")):
        wrong = [x[:1] if place == other else x for other, x in enumerate(rest)]
        with pytest.raises(ValueError, match=f"{name} must have the batch, tokens and heads of the other inputs"):
            delta_rule(r, *wrong, start)
    with pytest.raises(ValueError, match="start must"):
        delta_rule(r, *rest, start[:1])


def gated_loop(q, k, v, rates, logs, state):
    """Equation 10 of the gated DeltaNet, token by token, the state with a row for each channel of the keys.

    With a decay for each of them it is the recurrence of KDA.
    """
    logs = logs[..., None] if logs.ndim == 3 else logs
    means = []
    for t in range(q.shape[2]):
        key, share = k[:, :, t, :, None], rates[:, :, t, None, None]
        state = torch.exp(logs[:, :, t, :, None]) * state
        state = state - share * key * (key * state).sum(2, keepdim=True) + share * key * v[:, :, t, None]
        means.append((q[:, :, t, :, None] * state).sum(2))
    return torch.stack(means, 2), state


def draw_gated(tokens, width=8, depth=8, strong=False, channels=False):
    r, k, v, _, _, _, start = draw(tokens, width, depth)
    rates, logs = torch.rand(2, 3, tokens), -torch.rand(2, 3, tokens, *([width] if channels else []))
    return r, normalize(k, dim=-1), v, 2 * rates if strong else rates, 50 * logs if strong else logs, start


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 7, 64, 65, 130])
def test_with_a_decay_of_heads_or_channels_it_agrees_with_the_recurrence(tokens, channels, strong, dtype):
    assert_agrees(gated_delta_rule, gated_loop, draw_gated(tokens, strong=strong, channels=channels), dtype)


@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize("channels", [False, True])
def test_with_a_decay_of_heads_or_channels_in_cpp_it_agrees_with_the_recurrence(channels, strong, native_on):
    assert_agrees(gated_delta_rule, gated_loop, draw_gated(70, 33, 20, strong, channels), torch.float32)


def test_equal_decays_of_channels_are_the_decay_of_the_head():
    q, k, v, rates, logs, start = (x.double() for x in draw_gated(130, 8, 5))
    whole = gated_delta_rule(q, k, v, rates, logs, start)
    for one, other in zip(whole, gated_delta_rule(q, k, v, rates, logs[..., None].expand_as(k), start), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("tokens", [5, 70])
@pytest.mark.parametrize("channels", [False, True])
def test_first_and_second_derivatives_of_the_gated_rule_are_right(channels, tokens):
    inputs = [x[:1, :1].double().requires_grad_() for x in draw_gated(tokens, 2, 3, channels=channels)]
    assert torch.autograd.gradcheck(gated_delta_rule, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(gated_delta_rule, inputs, fast_mode=True)


def test_second_derivatives_in_cpp_are_those_of_the_loop(native_on):
    inputs = draw_gated(40, channels=True)

    def found(function, dtype):
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        y, state = function(*leaves)
        slopes = torch.autograd.grad(y.square().sum() + state.sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in slopes), leaves)

    ours, exact = found(gated_delta_rule, torch.float32), found(gated_loop, torch.float64)
    for place, (one, other) in enumerate(zip(ours, exact, strict=True)):
        assert_max_close(one, other, 2e-5, f"derivative {place}")


def test_no_decay_of_a_channel_is_so_strong_that_others_are_lost():
    """Where a chunk's decays sum up to e^-10000 in one channel and to 1 in another, both are exact."""
    q, k, v, rates, logs, start = draw_gated(64, channels=True)
    logs = torch.where(torch.arange(8) % 2 == 0, -160.0, 0.0).expand_as(logs)
    ours = gated_delta_rule(q, k, v, rates, logs, start)
    exact = gated_loop(*(x.double() for x in (q, k, v, rates, logs, start)))
    for place, (one, other) in enumerate(zip(ours, exact, strict=True)):
        assert_max_close(one, other, 2e-6, f"result {place}")


def test_without_decay_the_last_value_of_each_key_is_read():
    address = torch.eye(4, dtype=torch.float64)[[0, 1, 0, 2, 1]][None, None]
    values = torch.randn(1, 1, 5, 3, dtype=torch.float64)
    start = torch.zeros(1, 1, 4, 3, dtype=torch.float64)
    _, state = gated_delta_rule(address, address, values, torch.ones_like(address[..., 0]), None, start)
    torch.testing.assert_close(state[0, 0], torch.stack([*values[0, 0, [2, 4, 3]], torch.zeros(3).double()]))


@pytest.mark.parametrize("channels", [False, True])
def test_what_does_not_fit_the_gated_rule_is_refused(channels, untyped):
    q, *rest, start = draw_gated(9, channels=channels)
    for place, name in enumerate(("k", "v", "rates", "logs")):
        wrong = [x[:1] if place == other else x for other, x in enumerate(rest)]
        with pytest.raises(ValueError, match=f"{name} must have the batch, tokens and heads of the other inputs"):
            gated_delta_rule(q, *wrong, start)
