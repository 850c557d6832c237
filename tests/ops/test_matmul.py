import pytest
import torch
from torch.nn.functional import linear as plain
from torch.utils.flop_counter import FlopCounterMode

from ordinate.ops import linear_layer
from ordinate.ops.linear_layer import Linear, linear
from ordinate.ops.matmul import has_512_bit_units, matmul, matmul_partial_sums, onednn_is_faster
from ordinate.testing.assert_close import assert_max_close


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (2, 63, 5)])
@pytest.mark.parametrize("columns", [1, 9])
@pytest.mark.parametrize("type", [torch.float32, torch.float64])
def test_products_and_their_gradients_are_those_of_pytorch(shape, columns, type):
    x = torch.randn(*shape, dtype=type, requires_grad=True)
    weight = torch.randn(shape[-1], columns, dtype=type, requires_grad=True)
    slope = torch.randn(*shape[:-1], columns, dtype=type)
    found, exact = matmul(x, weight), x @ weight
    torch.testing.assert_close(found, exact)
    pairs = (torch.autograd.grad(y, (x, weight), slope) for y in (found, exact))
    for one, two in zip(*pairs, strict=True):
        torch.testing.assert_close(one, two)


def test_precision_is_kept_under_autocast():
    x, weight = torch.randn(4, 6).bfloat16(), torch.randn(6, 2, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = matmul(x, weight)
    torch.testing.assert_close(y, x.float() @ weight)
    y.sum().backward()
    torch.testing.assert_close(weight.grad, x.float().sum(0)[:, None].expand(-1, 2))


@pytest.mark.parametrize(("name", "expected"), [("AMD EPYC", True), ("Intel Xeon", False), ("", False)])
def test_the_library_is_chosen_by_the_processor(name, expected, monkeypatch):
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name})
    # without its cache
    assert onednn_is_faster.__wrapped__() == expected


@pytest.mark.parametrize(
    ("capability", "intersects", "expected"),
    [("AVX512", True, True), ("AVX512", False, False), ("AVX512", None, False), ("AVX2", True, False)],
)
def test_instructions_taken_in_two_halves_are_told_from_whole_ones(capability, intersects, expected, monkeypatch):
    # Zen 5 has VP2INTERSECT and Zen 4 does not; an older PyTorch may not report it
    found = {} if intersects is None else {"avx512_vp2intersect": intersects}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert has_512_bit_units() == expected


@pytest.mark.parametrize("wide", [True, False])
def test_long_sums_lose_no_more_digits_than_those_of_pytorch(wide, monkeypatch):
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr("ordinate.ops.matmul.onednn_is_faster", lambda: True)
    monkeypatch.setattr("ordinate.ops.matmul.has_512_bit_units", lambda: wide)
    a, b = torch.randn(64, 4096).softmax(-1), torch.randn(4096, 32)
    exact = a.double() @ b.double()
    lost, usual = ((x - exact).norm() for x in (matmul_partial_sums(a, b, torch.float32), a @ b))
    assert lost <= 1.3 * usual
    # bfloat16 would not show it
    assert (matmul_partial_sums(a, b, torch.bfloat16) - exact).norm() > 1.3 * usual


@pytest.fixture
def by_onednn(monkeypatch):
    """Many vectors are multiplied by oneDNN, however few they are; the calls that were."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    made, product = [], linear_layer.linear_product
    monkeypatch.setattr(linear_layer, "MIN_PRODUCTS", 0)
    monkeypatch.setattr("ordinate.ops.matmul.onednn_is_faster", lambda: True)
    monkeypatch.setattr(linear_layer, "linear_product", lambda *given: made.append(given) or product(*given))
    return made


def close(found, exact):
    assert_max_close(found, exact, 1e-5, "the product")


def drawn(rows, inner, outer, *, biased):
    x, weight = torch.randn(*rows, inner), torch.randn(outer, inner)
    return [y.requires_grad_() for y in (x, weight, *([torch.randn(outer)] if biased else []))]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "inner", "outer"), [((9,), 3, 17), ((2, 63), 33, 5), ((3, 4, 50), 64, 64)])
def test_many_vectors_are_multiplied_alike_by_onednn(rows, inner, outer, biased, by_onednn):
    inputs = drawn(rows, inner, outer, biased=biased)
    found, exact = linear(*inputs), plain(*inputs)
    assert len(by_onednn) == 1
    assert found.shape == exact.shape
    close(found, exact)
    slope = torch.randn_like(exact)
    pairs = (torch.autograd.grad(y, inputs, slope, create_graph=True) for y in (found, exact))
    once = [torch.autograd.grad(linear(*inputs), inputs, slope)]
    for one, other, third in zip(*pairs, *once, strict=True):
        assert one.shape == other.shape
        close(one, other)
        close(third, other)


def test_linear_by_onednn_has_second_derivatives(by_onednn):
    inputs = [x.double().detach().float().requires_grad_() for x in drawn((12,), 6, 5, biased=True)]

    def second(f):
        y = torch.autograd.grad(f(*inputs).pow(3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in y), inputs)

    for one, other in zip(second(linear), second(plain), strict=True):
        close(one, other)
    assert by_onednn


@pytest.mark.parametrize(("inner", "outer"), [(300, 40), (40, 300)])
def test_gradients_of_large_matrices(inner, outer, by_onednn):
    """The transposed copy is made in C++."""
    inputs = drawn((2000,), inner, outer, biased=True)
    slope = torch.randn(2000, outer)
    pairs = (torch.autograd.grad(f(*inputs), inputs, slope) for f in (linear, plain))
    for one, other in zip(*pairs, strict=True):
        close(one, other)
    assert by_onednn


def test_matrices_may_be_slices_and_transposed(by_onednn):
    x, whole = torch.randn(30, 8), torch.randn(12, 20, requires_grad=True)
    for weight in (whole[2:7, :8], whole[:, 4:12], whole.t()[:8, :8].t(), whole[:, ::2][:, :8], whole[::3, :8]):
        found, exact = linear(x.t().contiguous().t(), weight), plain(x, weight)
        close(found, exact)
        one, other = (torch.autograd.grad(y.square().sum(), whole, retain_graph=True)[0] for y in (found, exact))
        close(one, other)
    assert len(by_onednn) == 5


def test_only_what_needs_gradients_gets_them(by_onednn):
    layer, x = Linear(5, 7), torch.randn(40, 5)
    layer.weight.requires_grad_(False)
    y = layer(x)
    (of_bias,) = torch.autograd.grad(y.sum(), [layer.bias])
    close(of_bias, torch.full((7,), 40.0))
    with torch.no_grad():
        assert not layer(x).requires_grad
    assert len(by_onednn) == 2


def test_transforms_and_other_types_see_the_operation_of_pytorch(by_onednn):
    x, weight = torch.randn(40, 5), torch.randn(7, 5)
    grads = torch.func.vmap(torch.func.grad(lambda w, row: linear(row[None], w).square().sum()), (None, 0))(weight, x)
    assert grads.shape == (40, 7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert linear(x.double(), weight.double()).dtype == torch.float64
    assert linear(x.bfloat16(), weight.bfloat16()).dtype == torch.bfloat16
    assert linear(x.to("meta"), weight.to("meta")).shape == (40, 7)
    assert linear(x[:0], weight).shape == (0, 7)
    assert not [given for given in by_onednn if given[0].numel()]


def test_small_products_keep_to_pytorch(by_onednn, monkeypatch):
    monkeypatch.setattr(linear_layer, "MIN_PRODUCTS", 100 * 32 * 32)
    x, weight = torch.randn(100, 32), torch.randn(32, 32)
    linear(x[1:], weight)
    assert not by_onednn
    linear(x, weight)
    assert len(by_onednn) == 1


def test_a_counter_of_flops_sees_the_products(by_onednn):
    inputs = drawn((40,), 6, 5, biased=True)
    with FlopCounterMode(display=False) as counted:
        linear(*inputs).sum().backward()
    # forward, and the gradients of vectors and matrix
    assert counted.get_total_flops() == 3 * 2 * 40 * 6 * 5
    assert not by_onednn


def test_a_trace_has_the_operation_of_pytorch(by_onednn, monkeypatch):
    monkeypatch.setattr(torch.jit, "is_tracing", lambda: True)
    linear(torch.randn(40, 6), torch.randn(5, 6))
    assert not by_onednn


def test_where_onednn_is_disabled_it_is_not_used(by_onednn):
    x, weight = torch.randn(40, 6), torch.randn(5, 6)
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        linear(x, weight)
    finally:
        torch._C._set_mkldnn_enabled(before)
    assert not by_onednn
    linear(x, weight)
    assert len(by_onednn) == 1
