import pytest
import torch
from torch.func import grad, hessian, jvp, vmap

from ordinate.ops import grouped_linear as module
from ordinate.ops.grouped_linear import grouped_linear
from ordinate.testing.tolerance import assert_as_close

# of a group: several, none, all rows of one, a single row, more than are multiplied by one call
COUNTS = [(3, 0, 9, 1), (0, 0, 20, 0), (0, 1, 0, 0), (1, 1, 1, 1), (0, 0, 0, 5), (300, 2, 0, 70)]


def plain(x, weight, bias, groups):
    each = torch.einsum("rx,ryx->ry", x, weight[groups])
    return each if bias is None else each + bias[groups]


def made(counts, inner, outer, dtype=torch.float32, *, bias=True):
    torch.manual_seed(0)
    groups = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    x = torch.randn(len(groups), inner).to(dtype)
    weight = torch.randn(len(counts), outer, inner).to(dtype)
    return x, weight, torch.randn(len(counts), outer).to(dtype) if bias else None, groups


def derivatives(function, given, groups, order):
    """Output, gradients, and the gradients of a sum of their squares."""
    leaves = [None if x is None else x.clone().requires_grad_() for x in given]
    learned = [x for x in leaves if x is not None]
    out = function(*leaves, groups)
    found = [out.detach()]
    slopes = torch.autograd.grad(out.square().sum(), learned, create_graph=order == 2)
    found += [x.detach() for x in slopes]
    if order == 2:
        found += torch.autograd.grad(sum(x.square().sum() for x in slopes), learned)
    return found


# rows of 7 numbers are not aligned, and are multiplied group by group
@pytest.mark.parametrize(("inner", "outer"), [(16, 8), (8, 40), (7, 8), (8, 7)])
@pytest.mark.parametrize("counts", COUNTS)
def test_rows_are_multiplied_by_the_matrix_of_their_group_twice_backward(counts, inner, outer):
    for bias in (True, False):
        *given, groups = made(counts, inner, outer, bias=bias)
        found = derivatives(grouped_linear, given, groups, 2)
        wide = [None if x is None else x.double() for x in given]
        for one, other in zip(found, derivatives(plain, wide, groups, 2), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5 * float(other.abs().max() + 1))


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_without_gradients_it_is_the_same(counts, dtype):
    *given, groups = made(counts, 16, 8, dtype)
    exact = plain(*(x.double() for x in given), groups)
    with torch.no_grad():
        assert_as_close(grouped_linear(*given, groups), plain(*given, groups), exact)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_one_call_serves_few_rows_of_plain_tensors_only(monkeypatch):
    x, weight, bias, groups = made((3, 0, 9, 8), 16, 8)
    calls = []
    kept = torch.nn.functional.grouped_mm
    monkeypatch.setattr(torch.nn.functional, "grouped_mm", lambda *a, **b: calls.append(1) or kept(*a, **b))
    weight.requires_grad_()
    out = grouped_linear(x, weight, bias, groups)
    assert len(calls) == 1
    with torch.autocast("cpu", torch.bfloat16):
        low = grouped_linear(x, weight, bias, groups)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), out, rtol=0.05, atol=0.05)
    _, tangent = jvp(lambda x: grouped_linear(x, weight, bias, groups), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, plain(torch.ones_like(x), weight, None, groups))
    many = torch.zeros(module.FEW_ROWS * 4 + 1, dtype=torch.long)
    grouped_linear(torch.randn(len(many), 16), weight, bias, many)
    assert len(calls) == 1


def test_a_decoding_step_reads_the_matrices_of_its_rows_only(monkeypatch):
    x, weight, bias, groups = made((1, 0, 1, 0), 16, 8)
    weight[1], weight[3] = torch.nan, torch.nan
    read = []
    kept = module.linear
    monkeypatch.setattr(module, "linear", lambda x, w, b: read.append(w.data_ptr()) or kept(x, w, b))
    with torch.no_grad():
        out = grouped_linear(x, weight, bias, groups)
    assert read == [weight[0].data_ptr(), weight[2].data_ptr()]
    torch.testing.assert_close(out, plain(x, weight, bias, groups))


def value(product):
    return lambda weight, x, groups: product(x, weight, None, groups).square().sum().sin()


def squares_of_gradients(f):
    return lambda *given: sum(x.square().sum() for x in grad(f, argnums=(0, 1))(*given))


def mapped(f, of_weights=None):
    return vmap(f, in_dims=(of_weights, 0, 0))


TRANSFORMS = {
    "gradients of each": lambda f: lambda w, x, groups: mapped(grad(f, argnums=(0, 1)))(w, x, groups),
    "gradient of all": lambda f: lambda w, x, groups: grad(lambda w: mapped(f)(w, x, groups).sum())(w),
    "second gradients": lambda f: mapped(grad(squares_of_gradients(f), argnums=(0, 1))),
    "weights of each": lambda f: (
        lambda w, x, groups: mapped(grad(f, argnums=(0, 1)), 0)(torch.stack([w, -w, 2 * w]), x, groups)
    ),
    "weights only": lambda f: (
        lambda w, x, groups: vmap(grad(f), in_dims=(0, None, None))(torch.stack([w, 2 * w]), x[0], groups[0])
    ),
    "hessian": lambda f: lambda w, x, groups: hessian(lambda w: f(w, x[0, :3], groups[0, :3]))(w),
    "forward mode": lambda f: (
        lambda w, x, groups: jvp(lambda w, x: mapped(f)(w, x, groups), (w, x), (w.sin(), x.sin()))
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_it_can_be_mapped_and_differentiated_in_any_order(name):
    torch.manual_seed(0)
    groups = torch.tensor([[0, 0, 1, 3, 3], [1, 1, 1, 1, 1], [0, 2, 2, 3, 3]])
    given = 0.3 * torch.randn(4, 2, 3).double(), torch.randn(3, 5, 3).double(), groups
    found, exact = (TRANSFORMS[name](value(product))(*given) for product in (grouped_linear, plain))
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)
