"""Inputs that break other attention libraries, for every backend: correct results or clear errors.

What is wrong with the arguments themselves (masks, types, shapes) is in tests/bad_input/table.toml.
"""

import importlib
import inspect
from contextlib import suppress
from copy import deepcopy
from functools import wraps

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention._attend import BACKENDS
from ordinate.schemes import T5, Alibi, NoPosition, Scheme, Shaw
from ordinate.testing.backend import assert_agrees, random_qkv
from ordinate.testing.tolerance import assert_as_close

NAN, INF = float("nan"), float("inf")
SCHEMES = {
    "none": NoPosition,
    "alibi": lambda: Alibi(heads=4),
    "t5": lambda: T5(heads=4),
    "shaw": lambda: Shaw(head_width=8, past=3),
}
PLACES = {
    "causal": Geometry.causal,
    "window": lambda n: Geometry.causal(n, window=5),
    "padded": lambda n: Geometry.padded(torch.arange(n) >= torch.tensor([[0], [n // 2]])),
}
each_scheme = pytest.mark.parametrize("name", SCHEMES)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Lower the thresholds below which backends leave small inputs to others."""
    for name in BACKENDS:
        module = importlib.import_module(f"ordinate.attention.backends.{name}")
        limits = {"MAX_BLOCK_SCORES": 2**12}
        limits |= dict.fromkeys(("MIN_PAIRS", "MIN_HEAD_PAIRS", "MIN_CAUSAL_PAIRS", "MIN_OTHER_PAIRS"), 1)
        for limit, number in limits.items():
            if hasattr(module, limit):
                monkeypatch.setattr(module, limit, number)


def made(name):
    scheme = SCHEMES[name]()
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter)
    return scheme


class Unsupported(Exception):
    """The backend does not support the call."""


def each_backend(test):
    """Run a test with every backend that supports its call, the reference among them."""

    @wraps(test)
    def with_each(**given):
        ran = []
        for name in BACKENDS:
            # of each the same numbers, however many were tried before it
            torch.manual_seed(0)
            with suppress(Unsupported):
                test(backend=name, **given)
                ran.append(name)
        assert "reference" in ran

    signature = inspect.signature(test)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "backend"]
    with_each.__signature__ = signature.replace(parameters=parameters)
    return with_each


def taken(backend, at, q, k, v):
    """Raise `Unsupported` if the backend does not support the call."""
    try:
        explain(q, k, v, at, backend=backend)
    except ValueError as error:
        if "it does not: " not in str(error):
            raise
        raise Unsupported from None


def attended(backend, at, q, k, v):
    taken(backend, at, q, k, v)
    return attend(q, k, v, at, backend=backend)


@pytest.mark.covering(1)
# of one token the gradient of t5's table is nothing but rounding
@pytest.mark.covering(1)
@pytest.mark.where(lambda tokens, name: (tokens, name) != (1, "t5"))
@pytest.mark.parametrize(
    ("name", "geometry"),
    [("none", "causal"), ("alibi", "causal"), ("alibi", "window"), ("t5", "padded"), ("shaw", "window")],
)
@pytest.mark.parametrize("tokens", [1, 2, 127, 128, 129, 257, pytest.param(1025, marks=pytest.mark.extended)])
@each_backend
def test_every_length_agrees_with_the_reference(backend, tokens, name, geometry, monkeypatch):
    if tokens > 129:
        # blocks of a few dozen rows
        monkeypatch.setattr("ordinate.attention.backends.row_blocks.MAX_BLOCK_SCORES", 2**18)
    where, scheme = PLACES[geometry](tokens), made(name)
    q, k, v = random_qkv(where, dtype=torch.float32)
    taken(backend, scheme.at(where), q, k, v)
    assert_agrees(backend, scheme, where, q, k, v)


@pytest.mark.covering(0)
@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tokens", [2, 129, 257])
@each_backend
def test_odd_lengths_with_padding_agree_in_16_bits(backend, tokens, type):
    where, scheme = PLACES["padded"](tokens), made("alibi")
    q, k, v = random_qkv(where, width=7, dtype=type)
    taken(backend, scheme.at(where), q, k, v)
    assert_agrees(backend, scheme, where, q, k, v)


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("name", ["alibi", "t5"])
@pytest.mark.parametrize("place", PLACES)
@each_backend
def test_autocast_changes_neither_mask_nor_bias(backend, place, name):
    where, scheme = PLACES[place](257), made(name)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.bfloat16))
    taken(backend, scheme.at(where), q, k, v)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attend(q.float(), k.float(), v.float(), scheme.at(where), backend=backend)
    assert out.equal(attend(q, k, v, scheme.at(where), backend=backend))


@pytest.mark.long
@pytest.mark.parametrize("scheme", [NoPosition(), Alibi(heads=1)], ids=["none", "alibi"])
def test_more_tokens_than_16_bit_floats_can_count(scheme, monkeypatch):
    monkeypatch.undo()
    where, picked = Geometry.causal(65_537), [0, 32_767, 32_768, 65_535, 65_536]
    q, k, v = random_qkv(where, batch=1, heads=1, kv_heads=1, dtype=torch.float32)
    out = attend(q, k, v, scheme.at(where))
    (slope,) = torch.autograd.grad(out[:, :, picked].sum(), q)
    for row in picked:
        rows = slice(row, row + 1)
        some = q[:, :, rows].detach().double().requires_grad_()
        at = deepcopy(scheme).double().at(where).block(rows)
        exact = attend(some, k.detach().double(), v.detach().double(), at, backend="reference")
        (true,) = torch.autograd.grad(exact.sum(), some)
        assert torch.allclose(out[:, :, rows].double(), exact, atol=1e-5)
        assert torch.allclose(slope[:, :, rows].double(), true, atol=1e-5)


class Wall(Scheme):
    """Bias of -inf at keys less than 4 tokens away: the first four queries have no visible key."""

    shift_invariant = True

    def bias(self, where):
        near = where.offset[:, None, :, :, 0] < 4
        return torch.zeros(near.shape).masked_fill(near, -INF)


class Blind(Wall):
    """The same bias, not declared as shift invariant."""

    shift_invariant = False


@pytest.mark.covering(1)
@pytest.mark.parametrize("scheme", [Wall(), Blind()], ids=["table", "bias"])
@pytest.mark.parametrize("where", [Geometry.causal(9), Geometry.causal(2, cached=7), Geometry.causal(9, window=5)])
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float16])
@each_backend
def test_a_bias_of_minus_infinity_hides_keys_as_the_mask_does(backend, type, where, scheme):
    q, k, v = random_qkv(where, dtype=type)
    out = attended(backend, scheme.at(where), q, k, v)
    seen = where.visible & (where.offset[..., 0] >= 4)
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT / 8**0.5
    weights = scores.masked_fill(~seen[:, None], -INF).softmax(-1).nan_to_num(0.0)
    exact = weights @ v.double().repeat_interleave(2, 1)
    blind = ~seen.any(-1)[:, None].expand(out.shape[:3])
    assert (out[blind] == 0).all()
    assert torch.allclose(out.double(), exact, atol=8 * torch.finfo(type).eps)
    lost = torch.autograd.grad(out[blind].sum(), [q, k, v], retain_graph=True)
    assert all((x == 0).all() for x in lost)
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.sum(), [q, k, v]))


def padded():
    real = torch.tensor([[False] * 6, [False, False, True, True, True, True]])
    return Geometry.padded(real), ~real


def beyond_the_window():
    at = torch.arange(6)[None, :, None]
    return Geometry(at, at[:, :3], window=2, consecutive=True), torch.tensor([[False] * 4 + [True] * 2]).expand(2, 6)


def no_such_document():
    at, document = torch.arange(6)[None, :, None], torch.tensor([[0, 0, 1, 1, 2, 2]])
    blind = (document == 1).expand(2, 6)
    return Geometry(at, at, True, 0, None, document, torch.where(document == 1, 5, document), consecutive=True), blind


@pytest.mark.covering(1)
@pytest.mark.parametrize("make", [padded, beyond_the_window, no_such_document])
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float16])
@each_scheme
@each_backend
def test_a_query_without_visible_keys_gets_zero_and_no_gradient(backend, name, type, make):
    (where, blind), scheme = make(), made(name)
    q, k, v = random_qkv(where, dtype=type)
    out = attended(backend, scheme.at(where), q, k, v)
    blind = blind[:, None, :, None].expand_as(out)
    assert (out[blind] == 0).all()
    learned = [parameter for parameter in scheme.parameters() if parameter.requires_grad]
    lost = torch.autograd.grad(out[blind].sum(), [q, k, v, *learned], retain_graph=True, allow_unused=True)
    assert all(x is None or (x == 0).all() for x in lost)
    plain = attend(q, k, v, scheme.at(where), backend="reference")
    assert torch.allclose(out[~blind].float(), plain[~blind].float(), atol=8 * torch.finfo(type).eps)


@pytest.mark.covering(1)
@pytest.mark.parametrize("wrong", [NAN, INF, -INF])
@pytest.mark.parametrize("what", ["q", "k", "v"])
@each_scheme
@each_backend
def test_hidden_nan_and_infinity_do_not_spread(backend, name, what, wrong):
    # the first two tokens of the second row are padding, whose outputs are zero
    where, scheme = Geometry.padded(torch.tensor([[True] * 6, [False] * 2 + [True] * 4])), made(name)
    inputs = dict(zip("qkv", (x.detach() for x in random_qkv(where, dtype=torch.float32)), strict=True))
    exact = attend(*inputs.values(), scheme.at(where), backend="reference")
    inputs[what][1, :, :2] = wrong
    for x in inputs.values():
        x.requires_grad_()
    out = attended(backend, scheme.at(where), *inputs.values())
    assert torch.allclose(out, exact, atol=1e-6)
    gradients = torch.autograd.grad(out.square().sum(), list(inputs.values()))
    assert all(x.isfinite().all() for x in gradients)
    assert all((x[1, :, :2] == 0).all() for x in gradients)


@pytest.mark.covering(1)
@pytest.mark.parametrize("wrong", [NAN, INF, -INF])
@pytest.mark.parametrize("what", ["q", "k", "v"])
@each_scheme
@each_backend
def test_visible_nan_and_infinity_reach_only_the_rows_that_see_them(backend, name, what, wrong):
    where, scheme = Geometry.causal(9, window=4), made(name)
    inputs = dict(zip("qkv", (x.detach() for x in random_qkv(where, dtype=torch.float32)), strict=True))
    exact = attend(*inputs.values(), scheme.at(where), backend="reference")
    # the sixth token of the first row, in the first head and the queries that share it
    inputs[what][0, 0, 5, 3] = wrong
    out = attended(backend, scheme.at(where), *inputs.values())
    poisoned = torch.zeros(2, 4, 9, dtype=torch.bool)
    poisoned[0, : 1 if what == "q" else 2, 5 : 6 if what == "q" else 9] = True
    assert out[poisoned].isnan().all()
    assert torch.allclose(out[~poisoned], exact[~poisoned], atol=1e-6)


@pytest.mark.parametrize("wrong", [NAN, INF])
@each_scheme
def test_the_chosen_backend_shows_nan_and_infinity(name, wrong):
    where, scheme = Geometry.causal(9), made(name)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.bfloat16))
    q[0, 0, 5, 3] = wrong
    out = attend(q, k, v, scheme.at(where))
    assert out[0, 0, 5].isnan().all()
    assert out.isnan().any(-1).sum() == 1


EMPTY = {
    "no batch": (0, Geometry.causal(5), 8),
    "no tokens": (2, Geometry.causal(0), 8),
    "no queries": (2, Geometry.cross(0, 5), 8),
    "no keys": (2, Geometry.cross(5, 0), 8),
    "no new tokens": (2, Geometry.causal(0, cached=4), 8),
    "no channels": (2, Geometry.causal(5), 0),
}


@pytest.mark.covering(1)
# the table of shaw is as wide as a head
@pytest.mark.where(lambda name, case: (name, case) != ("shaw", "no channels"))
@pytest.mark.parametrize("case", EMPTY)
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16])
@each_scheme
@each_backend
def test_empty_inputs_give_zeros_of_the_right_shape(backend, name, type, case):
    batch, where, width = EMPTY[case]
    scheme = made(name)
    q, k, v = random_qkv(where, batch=batch, width=width, dtype=type)
    out = attended(backend, scheme.at(where), q, k, v)
    assert out.shape == (batch, 4, where.shape[0], width)
    assert out.dtype == type
    if where.shape[1] == 0:
        assert (out == 0).all()
    gradients = torch.autograd.grad(out.sum(), (q, k, v))
    assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]
    assert all((x == 0).all() for x in gradients) or out.numel()


def test_zero_heads_raise_an_error():
    q = torch.zeros(1, 0, 3, 8)
    with pytest.raises(ValueError, match="the number of heads of k must divide that of q"):
        attend(q, q, q, NoPosition().at(Geometry.causal(3)))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("size", "type"),
    [
        (1e4, torch.float32),
        (1e30, torch.float32),
        (1e4, torch.bfloat16),
        (1e30, torch.bfloat16),
        (1e4, torch.float16),
    ],
)
@each_scheme
@each_backend
def test_huge_scores_agree_with_the_reference(backend, name, size, type):
    where, scheme = Geometry.causal(17), made(name)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=type))
    q = (q * size).clamp(-6e4, 6e4) if type == torch.float16 else q * size
    inputs = [x.requires_grad_() for x in (q, k, v)]
    taken(backend, scheme.at(where), *inputs)
    out = attend(*inputs, scheme.at(where), backend=backend)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = attend(*wide, deepcopy(scheme).double().at(where), backend="reference")
    plain = attend(*inputs, scheme.at(where), backend="reference")
    assert_as_close(out, plain, exact)
    found, usual = (torch.autograd.grad(y.sum(), inputs) for y in (out, plain))
    for one, other, true in zip(found, usual, torch.autograd.grad(exact.sum(), wide), strict=True):
        # where one key takes all the weight, a gradient is a difference of huge numbers: compared at their scale
        natural = max(x.abs().max().item() for x in wide)
        limit = 3 * (other - true).abs().max() + 64 * torch.finfo(type).eps * natural
        assert one.isfinite().all()
        assert (one - true).abs().max() <= limit


@pytest.mark.covering(1)
@each_scheme
@each_backend
def test_overflowing_scores_never_give_a_plausible_number(backend, name):
    where, scheme = Geometry.causal(5), made(name)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    q, k = q.abs() * 1e30, k.abs() * 1e30
    out = attended(backend, scheme.at(where), q, k, v)
    exact = attend(q.double(), k.double(), v.double(), deepcopy(scheme).double().at(where), backend="reference")
    wrong = (out - exact).abs() > 1e-5
    assert out[wrong].isnan().all()


@pytest.mark.covering(1)
@each_scheme
@each_backend
def test_16_bit_scores_do_not_overflow(backend, name):
    where, scheme = Geometry.causal(9), made(name)
    # each score is five times what float16 can hold before it is scaled
    q, k = (torch.full((2, 4, 9, 8), 200.0, dtype=torch.float16).requires_grad_() for _ in range(2))
    v = torch.randn(2, 4, 9, 8).half().requires_grad_()
    taken(backend, scheme.at(where), q, k, v)
    out = attend(q, k, v, scheme.at(where), backend=backend)
    exact = attend(q.double(), k.double(), v.double(), deepcopy(scheme).double().at(where), backend="reference")
    assert_as_close(out, attend(q, k, v, scheme.at(where), backend="reference"), exact)
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", ["transposed", "expanded", "sliced", "reversed channels"])
@each_scheme
@each_backend
def test_every_memory_layout_gives_the_same_result(backend, name, how):
    where, scheme = Geometry.causal(9), made(name)
    layouts = {
        "transposed": lambda: torch.randn(2, 9, 4, 8).transpose(1, 2),
        "expanded": lambda: torch.randn(1, 1, 9, 8).expand(2, 4, 9, 8),
        "sliced": lambda: torch.randn(2, 8, 18, 24)[:, ::2, ::2, 3:11],
        "reversed channels": lambda: torch.randn(2, 4, 8, 9).mT,
    }
    q, k, v = (layouts[how]() for _ in range(3))
    taken(backend, scheme.at(where), q, k, v)
    assert_agrees(backend, scheme, where, q, k, v)
    # of gradients that arrive, too
    inputs, upstream = [x.requires_grad_() for x in (q, k, v)], layouts[how]()
    out = attend(q, k, v, scheme.at(where), backend=backend)
    found = torch.autograd.grad(out, inputs, upstream, retain_graph=True)
    usual = torch.autograd.grad(out, inputs, upstream.contiguous())
    for one, other in zip(found, usual, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
