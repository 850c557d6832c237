import math

import pytest
import torch

from ordinate.ops import wkv as ops
from ordinate.ops.native import build, scan
from ordinate.ops.wkv import PADDING_KEY, empty_sums, wkv
from ordinate.testing import assert_as_close
from ordinate.testing.assert_close import assert_max_close


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("wkv")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def native_on(_compiler, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)


def definition(k, v, decay, bonus, start):
    """The sums as the paper writes them, each anew for each token."""
    means = []
    above, under = (start[:, i] * torch.exp(start[:, 2]) for i in (0, 1))
    for t in range(k.shape[1]):
        old = torch.exp(t * decay)
        ages = torch.arange(t - 1, -1, -1)[:, None]
        past = torch.exp(ages * decay + k[:, :t])
        own = torch.exp(bonus + k[:, t])
        numerator = old * above + (past * v[:, :t]).sum(1) + own * v[:, t]
        means.append(numerator / (old * under + past.sum(1) + own))
    tokens = k.shape[1]
    last = torch.exp(torch.arange(tokens - 1, -1, -1)[:, None] * decay + k)
    ends = [torch.exp(tokens * decay) * above + (last * v).sum(1), torch.exp(tokens * decay) * under + last.sum(1)]
    return torch.stack(means, 1), torch.stack(ends, 1)


def loop(k, v, decay, bonus, start):
    """The recurrence of appendix D, which no number overflows."""
    a, d, p = start.unbind(1)
    means = []
    for t in range(k.shape[1]):
        top = torch.maximum(p, bonus + k[:, t])
        old, new = torch.exp(p - top), torch.exp(bonus + k[:, t] - top)
        means.append((old * a + new * v[:, t]) / (old * d + new))
        top = torch.maximum(p + decay, k[:, t])
        old, new = torch.exp(p + decay - top), torch.exp(k[:, t] - top)
        a, d, p = old * a + new * v[:, t], old * d + new, top
    return torch.stack(means, 1), torch.stack([a, d], 1) * torch.exp(p)[:, None]


def read(*inputs):
    y, sums = wkv(*inputs)
    return y, sums[:, :2] * torch.exp(sums[:, 2:])


def draw(tokens, channels=5, keys=1.0, paces=1.0, started=True):
    k, v = keys * torch.randn(2, tokens, channels), torch.randn(2, tokens, channels)
    start = torch.stack([torch.randn(2, channels), torch.rand(2, channels), torch.randn(2, channels)], 1)
    return k, v, -paces * torch.rand(channels), torch.randn(channels), start if started else empty_sums(k)


def results(function, inputs, dtype, asked):
    """Output and gradients of a function; the initial exponent has no gradient."""
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    y, sums = function(*leaves)
    total = (y * asked[0].to(dtype)).sum() + (sums * asked[1].to(dtype)).sum()
    gradients = torch.autograd.grad(total, leaves)
    return [y, sums, *gradients[:4], gradients[4][:, :2]]


def assert_agrees(inputs, dtype, reference=loop):
    asked = torch.randn_like(inputs[0]), torch.randn_like(inputs[4][:, :2])
    ours, exact = results(read, inputs, dtype, asked), results(reference, inputs, torch.float64, asked)
    for place, (one, other) in enumerate(zip(ours, exact, strict=True)):
        if dtype == torch.float64:
            assert_as_close(one, other, other, what=f"result {place}")
        else:
            # each step rounds the exponents once more
            assert_max_close(one, other, 2e-5, f"result {place}")


TOKENS = [1, 2, 7, 63, 130]


@pytest.mark.parametrize("tokens", TOKENS)
def test_it_is_the_mean_that_the_paper_defines(tokens):
    assert_agrees(draw(tokens), torch.float64, definition)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("tokens", TOKENS)
def test_it_agrees_with_the_recurrence(tokens, started, dtype):
    inputs = draw(tokens, started=started)
    if not started:
        # nothing can be asked of what a sum of nothing owes
        inputs = (*inputs[:4], inputs[4].clone())
    assert_agrees(inputs, dtype)


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(("tokens", "channels"), [(1, 5), (7, 16), (63, 33), (130, 300)])
def test_in_cpp_it_agrees_with_the_recurrence(tokens, channels, started, native_on):
    assert_agrees(draw(tokens, channels, started=started), torch.float32)


@pytest.mark.parametrize("where", ["plain", "native"])
def test_no_key_and_no_pace_is_too_large(where, request):
    if where == "native":
        request.getfixturevalue("native_on")
    k, v, _, bonus, start = draw(70, keys=100.0, started=False)
    decay = torch.tensor([-1e-6, -0.1, -10.0, -1e3, -1e5])
    leaves = [x.requires_grad_() for x in (k, v, decay, bonus)]
    y, _ = wkv(*leaves, start)
    exact, _ = loop(*(x.double() for x in (*leaves, start)))
    assert (y - exact).abs().max() < 1e-5
    for gradient in torch.autograd.grad(y.square().sum(), leaves):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("where", ["plain", "native"])
def test_a_token_without_weight_leaves_no_trace(where, request):
    if where == "native":
        request.getfixturevalue("native_on")
    k, v, decay, bonus, start = draw(9, started=False)
    k[:, :4], v[:, :4] = PADDING_KEY, 0
    y, sums = read(k, v, decay, bonus, start)
    alone, ends = read(k[:, 4:], v[:, 4:], decay, bonus, start)
    torch.testing.assert_close(y[:, 4:], alone, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sums, ends, rtol=1e-6, atol=1e-6)
    assert y.isfinite().all()


@pytest.mark.parametrize("where", ["plain", "native"])
def test_what_is_no_number_stays_none(where, request):
    if where == "native":
        request.getfixturevalue("native_on")
    for place in range(2):
        inputs = draw(40)
        inputs[place][0, 20, 3] = float("nan")
        y, _ = wkv(*inputs)
        assert y[0, 20:, 3].isnan().all()
        assert y[0, :20].isfinite().all()
        assert y[1].isfinite().all()


@pytest.mark.parametrize("where", ["plain", "native"])
def test_in_pieces_it_is_the_same(where, request):
    if where == "native":
        request.getfixturevalue("native_on")
    k, v, decay, bonus, sums = draw(40, started=False)
    whole, end = read(k, v, decay, bonus, sums)
    means = []
    for keys, values in zip(k.split([17, 1, 0, 22], 1), v.split([17, 1, 0, 22], 1), strict=True):
        y, sums = wkv(keys, values, decay, bonus, sums)
        means.append(y)
    torch.testing.assert_close(torch.cat(means, 1), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(sums[:, :2] * torch.exp(sums[:, 2:]), end, rtol=1e-5, atol=1e-6)


def test_its_gradients_are_right():
    inputs = [x.double().requires_grad_() for x in draw(6, channels=2)]
    assert torch.autograd.gradcheck(lambda *x: read(*x, inputs[4].detach()), inputs[:4])


@pytest.mark.parametrize("step", [1, 10, 2**15])
def test_however_many_chunks_are_read_side_by_side(step, monkeypatch):
    monkeypatch.setattr(ops, "STEP_ELEMENTS", step)
    assert_agrees(draw(61, channels=1), torch.float64)


FAR = {
    "keys below the first": (0, lambda k: k - 30 * (torch.arange(60)[:, None] % 4)),
    "keys above the first": (0, lambda k: k - 95 * (torch.arange(60)[:, None] == 0)),
    "a bonus above": (3, lambda bonus: bonus + 90),
    "a bonus below": (3, lambda bonus: bonus - 90),
    "what was before": (4, lambda start: start + torch.tensor([0, 0, 90])[:, None]),
    "tokens without weight": (0, lambda k: torch.where(torch.arange(60)[:, None] < 30, k, PADDING_KEY)),
}


@pytest.mark.parametrize("far", [None, *FAR])
def test_the_short_way_is_taken_only_where_it_is_exact(far, monkeypatch):
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    inputs, steps = list(draw(60)), []
    if far is not None:
        place, away = FAR[far]
        inputs[place] = away(inputs[place])
    assert_agrees(inputs, torch.float32)
    token_by_token = ops._token_by_token
    monkeypatch.setattr(ops, "_token_by_token", lambda *given: steps.append(given) or token_by_token(*given))
    y, end = wkv(*inputs)
    assert bool(steps) == (far is not None)
    monkeypatch.setattr(ops, "SMALLEST", math.inf)
    slowly, same_end = wkv(*inputs)
    assert steps
    assert_max_close(y, slowly.double(), 2e-6, "means")
    assert_max_close(end[:, :2] / end[:, 1:2], (same_end[:, :2] / same_end[:, 1:2]).double(), 2e-6, "sums")


def test_what_does_not_fit_is_refused(untyped):
    k, v, decay, bonus, start = draw(9)
    for inputs, match in (
        (
            (k, v[:, 1:], decay, bonus, start),
            r"v must have .*; got shape \(2, 8, 5\), expected \(2, 9, 5\); give all",
        ),
        ((k, v, decay[1:], bonus, start), r"decay must .* got shape \(4,\), expected \(5,\)"),
        ((k, v, decay, bonus[None], start), "bonus must"),
        ((k, v, decay, bonus, start[:1]), r"start must .* got shape \(1, 3, 5\)"),
    ):
        with pytest.raises(ValueError, match=match):
            wkv(*inputs)


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.zeros(1, 2**10, 64, dtype=torch.float64), "it supports float32 only"),
        (torch.zeros(1, 2**10, 63), "there are fewer than 65536 elements"),
        (torch.zeros(1, 2**10, 64, device="meta"), "it supports CPU tensors only"),
    ],
)
def test_what_cpp_does_not_take(x, reason, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    assert scan.unsupported_reason("wkv", x) == reason
    assert scan.unsupported_reason("wkv", torch.zeros(2**16), x.to(torch.float64)) is not None
