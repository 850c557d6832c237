import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ordinate.ops.gelu import gelu, gelu_tanh
from ordinate.ops.native import build, scan
from ordinate.ops.native import gelu as native
from ordinate.testing.assert_close import assert_max_close


def plain_tanh(x):
    return functional.gelu(x, approximate="tanh")


FORMS = {"exact": (gelu, functional.gelu), "tanh": (gelu_tanh, plain_tanh)}
# everything between the tails, on both sides of zero, and far beyond
NUMBERS = torch.cat([torch.linspace(-9, 9, 40_001), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 60, -60, 1e30, -1e30])])


@pytest.fixture
def calls(monkeypatch):
    """Each call of the C++ kernel, which is switched on, however few the numbers."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    reason = build.unavailable_reason("gelu")
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)
    made, run = [], native._run
    monkeypatch.setattr(native, "_run", lambda *given: made.append(given) or run(*given))
    return made


def results(function, x, slope):
    x = x.clone().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y, x, slope.to(y.dtype))[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 8e-7), (torch.bfloat16, 2**-8)])
def test_in_cpp_it_is_the_formula(form, dtype, error, calls):
    """In float32 PyTorch's own errors reach 1e-6."""
    ours, plain = FORMS[form]
    x, slope = NUMBERS.to(dtype), torch.ones(len(NUMBERS))
    found, exact = results(ours, x, slope), results(plain, x.double(), slope)
    assert len(calls) == 2
    for one, truth in zip(found, exact, strict=True):
        assert one.dtype == dtype
        # beside the last digit, which grows with the number
        assert ((one.double() - truth).abs() / truth.abs().clamp(min=1)).max() <= error


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_finite_number(form, calls):
    ours, _ = FORMS[form]
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), 1.0])
    y, slope = results(ours, x, torch.ones(4))
    assert y[0].isnan()
    assert slope[0].isnan()
    assert y[1:3].tolist() == [float("inf"), 0]
    assert slope[1:3].tolist() == [1, 0]
    assert y[3].isfinite()


@pytest.mark.parametrize("form", FORMS)
def test_second_derivatives(form, calls):
    def second(f, x):
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(f(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    x = torch.linspace(-4, 4, 301)
    ours, plain = FORMS[form]
    assert_max_close(second(ours, x), second(plain, x.double()), 2e-5, "second derivative")
    assert calls


def test_threads_and_slices_change_no_bit(calls):
    x = torch.randn(3 * 2**15 + 5)
    alone = gelu(x)
    try:
        torch.set_num_threads(2)
        together = gelu(x)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(alone, together)
    assert torch.equal(gelu(x[7:4007]), alone[7:4007])


def test_what_is_left_to_pytorch(calls):
    class Watch(TorchDispatchMode):
        seen = ()

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            self.seen = (*self.seen, str(operation))
            return operation(*args, **(kwargs or {}))

    x = torch.randn(6, 8)
    for other in (x.double(), x.half(), x.t()):
        assert torch.equal(gelu(other), functional.gelu(other))
    with Watch() as watch:
        gelu(x)
    assert "aten.gelu.default" in watch.seen
    assert not calls
    each = torch.func.vmap(torch.func.grad(lambda row: gelu(row).sum()))(x)
    torch.testing.assert_close(each, results(gelu, x, torch.ones(6, 8))[1])
    assert len(calls) == 2


def test_a_mutant_of_the_derivative_is_noticed(calls, monkeypatch):
    run = native._run
    monkeypatch.setattr(native, "_run", lambda tanh, x, slope: run(not tanh if slope is not None else tanh, x, slope))
    found, exact = (results(f, NUMBERS, torch.ones(len(NUMBERS))) for f in FORMS["exact"])
    assert_max_close(found[0], exact[0], 1e-6, "the result")
    with pytest.raises(AssertionError, match="derivative"):
        assert_max_close(found[1], exact[1], 1e-5, "the derivative")
