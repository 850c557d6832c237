import pytest
import torch
from torch import nn

from ordinate.ops.native import build, scan
from ordinate.ops.native import rms_norm as native
from ordinate.ops.rms_norm import RMSNorm
from ordinate.testing.assert_close import assert_max_close


@pytest.fixture
def calls(monkeypatch):
    """Each call of the C++ kernel, which is switched on, however few the rows."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    reason = build.unavailable_reason("rms_norm")
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)
    made, run = [], native._run
    monkeypatch.setattr(native, "_run", lambda *given, **tensors: made.append(given) or run(*given, **tensors))
    return made


def drawn(*shape, eps=None, zero_centred=False):
    norm = RMSNorm(shape[-1], eps=eps, zero_centred=zero_centred)
    nn.init.normal_(norm.weight)
    return norm, (torch.randn(*shape) * torch.logspace(-3, 3, shape[-2])[:, None]).requires_grad_()


def by_the_formula(norm, x):
    eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
    factor = norm.weight.to(x.dtype) + (1 if norm.zero_centred else 0)
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * factor


def results(function, norm, x):
    x = x.detach().requires_grad_()
    out = function(x)
    slope = torch.linspace(-1, 2, x.shape[-1], dtype=x.dtype)
    return [out, *torch.autograd.grad((out * slope).sin().sum(), [x, norm.weight])]


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("eps", [None, 1e-2])
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (2, 130, 17), (300, 96), (3, 5, 20, 33)])
def test_in_cpp_it_is_the_formula(shape, eps, zero_centred, calls):
    norm, x = drawn(*shape, eps=eps, zero_centred=zero_centred)
    found, exact = results(norm, norm, x), results(lambda x: by_the_formula(norm, x), norm, x.double())
    assert len(calls) == 2
    for place, (one, other) in enumerate(zip(found, exact, strict=True)):
        assert one.dtype == torch.float32
        assert_max_close(one, other, 1e-5, f"result {place}")


@pytest.mark.parametrize("zero_centred", [False, True])
def test_second_derivatives(zero_centred, calls):
    norm, x = drawn(9, 12, zero_centred=zero_centred)

    def second(function, x):
        x = x.detach().requires_grad_()
        first = torch.autograd.grad(function(x).pow(3).sum(), [x, norm.weight], create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), [x, norm.weight])

    x = x.detach() / x.detach().norm(dim=1, keepdim=True)
    for one, other in zip(second(norm, x), second(lambda x: by_the_formula(norm, x), x.double()), strict=True):
        assert_max_close(one, other, 1e-4, "second derivative")
    assert calls


def test_threads_change_no_bit(calls):
    norm, x = drawn(3000, 24)
    alone = results(norm, norm, x)
    try:
        torch.set_num_threads(2)
        together = results(norm, norm, x)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_what_is_no_number_spoils_its_row_alone(calls):
    norm, x = drawn(5, 8)
    with torch.no_grad():
        x[3, 2] = float("nan")
        out = norm(x)
    assert out[3].isnan().all()
    assert out.isnan().sum() == 8
    assert calls


def test_what_is_left_to_pytorch(calls):
    x = torch.randn(6, 4, 8)
    for norm, given in (
        (RMSNorm(8, elementwise_affine=False), x),
        (RMSNorm((4, 8)), x),
        (RMSNorm(8), x.transpose(0, 1)),
        (RMSNorm(8).double(), x.double()),
        (RMSNorm(8).bfloat16(), x.bfloat16()),
    ):
        assert torch.equal(norm(given), nn.RMSNorm.forward(norm, given))
    norm = RMSNorm(8)
    each = torch.func.vmap(torch.func.grad(lambda row: norm(row).sin().sum()))(x[0])
    assert not calls
    rows = x[0].clone().requires_grad_()
    torch.testing.assert_close(each, torch.autograd.grad(norm(rows).sin().sum(), rows)[0])
    assert len(calls) == 2


def test_a_mutant_with_another_epsilon_is_noticed(calls, monkeypatch):
    run = native._run
    monkeypatch.setattr(native, "_run", lambda eps, **x: run(eps * (100 if "gradient" in x else 1), **x))
    norm, x = drawn(9, 8, eps=1e-3)
    found, exact = results(norm, norm, x), results(lambda x: by_the_formula(norm, x), norm, x.double())
    assert_max_close(found[0], exact[0], 1e-5, "the result")
    with pytest.raises(AssertionError, match="gradient"):
        assert_max_close(found[1], exact[1], 1e-5, "gradient")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_zero_centred_weight_is_added_to_1_without_losing_its_digits(kind):
    norm = RMSNorm(64, eps=1e-6, zero_centred=True).to(kind)
    assert torch.equal(norm.weight, torch.zeros(64, dtype=kind))
    nn.init.uniform_(norm.weight, -2e-3, 2e-3)
    x = torch.randn(5, 64).to(kind)
    found, wide = results(norm, norm, x), torch.promote_types(kind, torch.float32)
    exact = results(lambda x: by_the_formula(norm, x.to(wide)).to(kind), norm, x)
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == kind
        assert_max_close(one, other, 4 * torch.finfo(kind).eps, "zero-centred")
    if kind.itemsize == 2:
        # 1 + weight is 1 in 16 bits for most of these, which is another output
        lost = nn.functional.rms_norm(x, (64,), 1 + norm.weight, 1e-6)
        assert (lost != found[0]).any()


def test_a_zero_centred_norm_starts_at_0_and_says_so():
    norm = RMSNorm(8, zero_centred=True)
    nn.init.ones_(norm.weight)
    norm.reset_parameters()
    assert torch.equal(norm.weight, torch.zeros(8))
    assert torch.equal(norm(torch.ones(2, 8)), nn.RMSNorm(8)(torch.ones(2, 8)))
    assert "zero_centred=True" in repr(norm)
    assert "zero_centred" not in repr(RMSNorm(8))
    bare = RMSNorm(8, elementwise_affine=False, zero_centred=True)
    assert torch.equal(bare(torch.ones(2, 8)), nn.RMSNorm(8)(torch.ones(2, 8)))
