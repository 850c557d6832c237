"""A few vectors times a large matrix in C++ give what PyTorch's linear gives."""

import itertools

import pytest
import torch
from torch.nn.functional import linear as plain

from ordinate import Decoder, Shape, generate
from ordinate.ops import linear_layer as module
from ordinate.ops.linear_layer import Linear, linear
from ordinate.ops.native import build
from ordinate.testing.tolerance import assert_as_close

TYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("linear")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def calls(_compiler, monkeypatch):
    """How often C++ was asked: it is switched on, however small the matrix."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(module, "MIN_ELEMENTS", 0)
    made, multiply = [], module.multiply
    monkeypatch.setattr(module, "multiply", lambda *given: made.append(given) or multiply(*given))
    return made


def drawn(vectors, inner, outer, type, bias=True):
    generator = torch.Generator().manual_seed(vectors * 10000 + inner * 10 + outer)
    x, weight, added = (
        torch.randn(*size, generator=generator) for size in ((vectors, inner), (outer, inner), (outer,))
    )
    return x.to(type), weight.to(type), added.to(type) if bias else None


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("inner", [1, 7, 16, 32, 63, 129])
@torch.no_grad()
def test_every_size(inner, type, calls):
    ours, theirs, truth = [], [], []
    for vectors, outer in itertools.product(range(1, 10), (1, 3, 4, 7, 129)):
        x, weight, bias = drawn(vectors, inner, outer, type, bias=vectors % 2 == 0)
        exact = plain(x.double(), weight.double(), None if bias is None else bias.double())
        for list_, part in ((ours, linear(x, weight, bias)), (theirs, plain(x, weight, bias)), (truth, exact)):
            assert part.shape == (vectors, outer)
            list_.append(part.flatten())
    assert_as_close(torch.cat(ours), torch.cat(theirs), torch.cat(truth))
    # nine are one too many
    assert len(calls) == 8 * 5


@pytest.mark.parametrize("type", TYPES)
@torch.no_grad()
def test_axes_and_rows_of_a_larger_matrix(type, calls):
    x, weight, bias = drawn(6, 40, 90, type)
    part = slice(13, 70)
    for given in (x.reshape(2, 3, 40), x.reshape(3, 2, 40).transpose(0, 1), x.reshape(1, 6, 1, 40)):
        exact = plain(given.double(), weight[part].double(), bias[part].double())
        assert_as_close(linear(given, weight[part], bias[part]), plain(given, weight[part], bias[part]), exact)
    assert len(calls) == 3
    # columns of it do not lie side by side
    linear(x, weight.T.contiguous().T)
    assert len(calls) == 3


@pytest.mark.parametrize("type", TYPES)
@torch.no_grad()
def test_threads_change_no_bit(type):
    x, weight, bias = drawn(3, 65, 4099, type)
    one = linear(x, weight, bias)
    torch.set_num_threads(2)
    try:
        assert torch.equal(linear(x, weight, bias), one)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("type", TYPES)
@torch.no_grad()
def test_what_is_not_finite_shows_where_it_belongs(type, calls):
    x, weight, bias = drawn(2, 45, 9, type)
    x[0, 44], weight[3, 2], bias[8] = float("nan"), float("inf"), float("-inf")
    out = linear(x, weight, bias)
    assert out[0].isnan().all()
    assert out[1, 3].abs() == float("inf")
    assert out[1, 8] == float("-inf")
    assert out[1, [0, 1, 2, 4, 5, 6, 7]].isfinite().all()
    assert calls


def test_whatever_learns_is_left_to_pytorch(calls):
    x, weight, bias = (part.requires_grad_() for part in drawn(2, 40, 9, torch.float32))
    linear(x, weight, bias).square().sum().backward()
    slopes = x.grad, weight.grad, bias.grad
    again = [part.detach().clone().requires_grad_() for part in (x, weight, bias)]
    plain(*again).square().sum().backward()
    assert all(torch.equal(one, other.grad) for one, other in zip(slopes, again, strict=True))
    assert not calls
    # nothing is learned of these
    linear(x.detach(), weight.detach())
    assert len(calls) == 1


@torch.no_grad()
def test_what_else_is_left_to_pytorch(calls):
    x, weight, _ = drawn(2, 40, 9, torch.float32)
    linear(x.double(), weight.double())
    linear(x[:0], weight)
    assert linear(x[0], weight).shape == (9,)
    with pytest.raises(RuntimeError):
        linear(x, weight.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert linear(x.to("meta"), weight.to("meta")).shape == (2, 9)
    assert not calls


@torch.inference_mode()
def test_a_decoder_writes_by_it(calls, monkeypatch):
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=61, width=32, layers=2, heads=2, feedforward="swiglu")).eval()
    ids = torch.randint(0, 61, (2, 12))
    fast = torch.cat(list(generate(model, ids, 9, temperature=0)), 1)
    # of each token but the first: four products a layer, and the head
    assert len(calls) == 8 * (2 * 4 + 1) + 1
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    assert torch.equal(torch.cat(list(generate(model, ids, 9, temperature=0)), 1), fast)


def test_it_is_a_linear_layer_as_any():
    layer = Linear(5, 3)
    assert isinstance(layer, torch.nn.Linear)
    assert str(layer) == str(torch.nn.Linear(5, 3))
