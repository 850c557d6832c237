import pytest
import torch

from ordinate.ops.gated_norm import EPSILON, gated_norm
from ordinate.ops.native import build, scan
from ordinate.ops.native import gated_norm as native
from ordinate.testing.assert_close import assert_max_close


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("gated_norm")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def calls(_compiler, monkeypatch):
    """Each job that C++ was given: it is switched on, however small the tensors."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)
    made, run = [], native._run
    monkeypatch.setattr(native, "_run", lambda *given: made.append(given) or run(*given))
    return made


def by_the_formula(y, gate, scale, shift, *own):
    off = y - y.mean(3, keepdim=True)
    normed = (off / torch.sqrt(off.square().mean(3, keepdim=True) + EPSILON)).transpose(1, 2).flatten(2)
    normed = normed * scale + shift
    if own:
        r, k, v, bonus = own
        read = torch.einsum("bhnd,bhnd,hd->bhn", r, k, bonus.unflatten(0, (-1, k.shape[3])))
        normed = normed + (read[..., None] * v).transpose(1, 2).flatten(2)
    return normed * gate


def ours(y, gate, scale, shift, *own):
    return gated_norm(y, gate, scale, shift, own or None)


def draw(tokens, heads, width, adds):
    """As the mixers have them: heads of a token side by side, or not."""
    y, r, k = (torch.randn(2, tokens, heads, width).transpose(1, 2) for _ in range(3))
    own = [r, k, torch.randn(2, heads, tokens, width), torch.randn(heads * width)]
    rest = torch.randn(2, tokens, heads * width), torch.randn(heads * width), torch.randn(heads * width)
    return [3 * y + 1, *rest, *(own if adds else [])]


def results(function, inputs, dtype):
    leaves = [x.to(dtype).requires_grad_() for x in inputs]
    out = function(*leaves)
    return [
        out,
        *torch.autograd.grad((out * torch.linspace(-1, 2, out.shape[2], dtype=dtype)).square().sum(), leaves),
    ]


SIZES = [(1, 1, 3), (7, 3, 20), (130, 2, 64), (260, 1, 17)]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_it_is_the_formula(sizes, adds):
    inputs = draw(*sizes, adds)
    for one, other in zip(*(results(f, inputs, torch.float64) for f in (ours, by_the_formula)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_in_cpp_it_is_the_formula(sizes, adds, calls):
    inputs = draw(*sizes, adds)
    found, exact = results(ours, inputs, torch.float32), results(by_the_formula, inputs, torch.float64)
    assert len(calls) == 2
    for place, (one, other) in enumerate(zip(found, exact, strict=True)):
        assert_max_close(one, other, 5e-6, f"result {place}")


def test_two_threads_change_no_bit(calls):
    inputs = draw(300, 2, 16, True)
    alone = results(ours, inputs, torch.float32)
    try:
        torch.set_num_threads(2)
        together = results(ours, inputs, torch.float32)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_a_mutant_with_another_epsilon_is_noticed(calls, monkeypatch):
    run = native._run
    monkeypatch.setattr(native, "_run", lambda back, epsilon, x: run(back, epsilon * (100 if back else 1), x))
    inputs = draw(9, 2, 8, False)
    found, exact = results(ours, inputs, torch.float32), results(by_the_formula, inputs, torch.float64)
    assert_max_close(found[0], exact[0], 5e-6, "the result")
    with pytest.raises(AssertionError, match="gradient"):
        assert_max_close(found[1], exact[1], 5e-6, "gradient")


def test_what_is_no_number_spoils_its_head_alone(calls):
    y, *rest = draw(5, 2, 8, False)
    y[0, 1, 3, 2] = float("nan")
    out = ours(y, *rest).unflatten(2, (2, 8))
    assert out[0, 3, 1].isnan().all()
    assert out.isnan().sum() == 8
