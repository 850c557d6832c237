"""Rows of the table of invalid inputs that apply to any scheme, tested for every scheme of the catalog."""

import re
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ordinate
from ordinate import Geometry, attend
from ordinate.core import catalog
from ordinate.schemes import Scheme
from ordinate.testing.case import HEAD_WIDTH, HEADS, SIZES, WIDTH, SchemeCase, hook_outputs, random_qkv

SOURCE = Path(ordinate.__file__).parent
NAMES = catalog.names("ordinate.schemes")
NAN, INF = float("nan"), float("inf")
pytestmark = [pytest.mark.usefixtures("untyped"), pytest.mark.parametrize("name", NAMES)]


def case_of(name):
    return SchemeCase(catalog.load("ordinate.schemes", Scheme, name))


def refused(ask):
    """Return the message of the error that this raises; it must be our own, with the three parts of a message."""
    with pytest.raises((ValueError, TypeError)) as caught:
        ask()
    last = traceback.extract_tb(caught.tb)[-1]
    assert SOURCE in Path(last.filename).parents, f"{last.filename} raised it: {caught.value}"
    assert re.search(r".{8,}?; .+; .{4,}", str(caught.value), re.DOTALL), f"it does not say all three: {caught.value}"
    return str(caught.value)


def ask_all(at, x, q, k):
    """Calls of all hooks of a scheme that take tensors of the model."""
    if "embed" in at.scheme.hooks:
        yield "x", lambda: at.embed(x)
    yield "q", lambda: at.encode(q, k)


@pytest.mark.covering(1)
@pytest.mark.parametrize("wrong", [0, -1])
@pytest.mark.parametrize("size", ["width", "heads", "head_width", "max_length", "layers"])
@pytest.mark.where(lambda name, size: size in catalog.options(case_of(name).kind))
def test_a_size_below_one_raises_an_error(name, size, wrong):
    case = case_of(name)
    bound = catalog.bind(case.kind, {}, SIZES)
    assert str(wrong) in refused(lambda: case.kind(**(bound | {size: wrong})))


@pytest.mark.where(lambda name: "head_width" in catalog.options(case_of(name).kind))
def test_an_odd_head_width_is_an_error_or_supported(name):
    case = case_of(name)
    bound = catalog.bind(case.kind, {}, SIZES)
    try:
        scheme = case.kind(**(bound | {"head_width": 7}))
    except ValueError:
        assert "7" in refused(lambda: case.kind(**(bound | {"head_width": 7})))
        return
    at = scheme.at(case.with_axes(Geometry.causal(5)))
    q, k, v = torch.randn(3, 2, HEADS, 5, 7)
    out = attend(q, k, v, at)
    assert out.shape == (2, HEADS, 5, 7)
    assert out.isfinite().all()


@pytest.mark.parametrize("wrong", [0, -1.0, NAN, INF])
@pytest.mark.where(lambda name: "theta" in catalog.options(case_of(name).kind))
def test_a_base_that_is_not_positive_raises_an_error(name, wrong):
    case = case_of(name)
    bound = catalog.bind(case.kind, {}, SIZES)
    assert "theta" in refused(lambda: case.kind(**(bound | {"theta": wrong})))


def test_an_unknown_option_raises_an_error(name):
    kind = case_of(name).kind
    assert "no option of" in refused(lambda: catalog.bind(kind, {"does_not_exist": 1}, SIZES))


def test_an_option_of_another_type_raises_an_error(name):
    case = case_of(name)
    bound = catalog.bind(case.kind, {}, SIZES)
    for option in catalog.options(case.kind):
        wrong = bound | {option: "does not exist"}
        with pytest.raises((ValueError, TypeError), match=r"does not exist|must be|needs"):
            case.kind(**wrong)


def test_a_geometry_of_another_length_raises_an_error(name):
    case = case_of(name)
    at = case.scheme().at(case.with_axes(Geometry.causal(6)))
    q, k, v = random_qkv(2, 5)
    assert "5" in refused(lambda: at.encode(q, k))
    assert "6" in refused(lambda: attend(q, k, v, at))
    real = torch.ones(3, 5).bool()
    at = case.scheme().at(case.with_axes(Geometry.padded(real)))
    assert "3" in refused(lambda: at.encode(q, k))
    assert "3" in refused(lambda: attend(q, k, v, at))


@pytest.mark.covering(1)
@pytest.mark.parametrize("pos", [-1, -1000])
def test_a_negative_position_is_an_error_or_supported(name, pos):
    case = case_of(name)
    scheme, x = case.scheme(), case.embeddings(2, 4)
    there = case.with_axes(Geometry.from_positions(torch.tensor([pos, 0, 1, 5])[None, :, None]))
    if scheme.max_length is not None:
        assert str(pos) in refused(lambda: scheme.at(there))
        return
    try:
        out = case.model()(x, there)
    except ValueError:
        assert str(pos) in refused(lambda: scheme.at(there))
        return
    assert out.isfinite().all()
    if scheme.shift_invariant:
        moved = replace(there, q_pos=there.q_pos - pos, k_pos=there.k_pos - pos)
        assert torch.allclose(out, case.model()(x, moved), atol=1e-9, rtol=0)


@pytest.mark.parametrize("wrong", [NAN, INF, -INF])
def test_a_nonfinite_position_raises_an_error(name, wrong):
    case = case_of(name)
    pos = torch.tensor([0.0, wrong, 2.0], dtype=torch.float64)[None, :, None]
    refused(lambda: case.scheme().at(case.with_axes(Geometry.from_positions(pos))))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_at_large_positions_costs_rounding_only(name, dtype):
    case = case_of(name)
    limit = case.scheme().max_length
    start = 70_000 if limit is None else limit - 4
    where = case.with_axes(Geometry.from_positions(torch.arange(start, start + 4)[None, :, None]))
    # the exact result: parameters rounded to the same dtype, everything else in float64
    narrow = hook_outputs(case.scheme(torch.float64).to(dtype).double(), where)
    rounded = case.scheme(torch.float64).to(dtype)
    try:
        came = hook_outputs(rounded, where, dtype)
    except ValueError:
        assert str(dtype).removeprefix("torch.") in refused(lambda: hook_outputs(rounded, where, dtype))
        return
    for hook, out in came.items():
        exact = narrow[hook]
        assert out.isfinite().all(), f"{hook} is not finite"
        error = (out.double() - exact).abs().max() / exact.abs().max().clamp(min=1.0)
        # a few roundings in the dtype of the model
        assert error <= 16 * torch.finfo(dtype).eps, f"{hook} is off by {error:.2g} of its size"


def test_integer_activations_raise_an_error(name):
    case = case_of(name)
    at = case.scheme().at(case.with_axes(Geometry.causal(5)))
    x, (q, k, _) = case.embeddings(2, 5), random_qkv(2, 5)
    for what, ask in ask_all(at, x.long(), q.long(), k.long()):
        assert f"{what} needs floating-point numbers; got torch.int64" in refused(ask)


def test_input_on_another_device_raises_an_error(name):
    case = case_of(name)
    at = case.scheme().at(case.with_axes(Geometry.causal(5)))
    x, (q, k, v) = case.embeddings(2, 5), random_qkv(2, 5)
    for _, ask in ask_all(at, x.to("meta"), q.to("meta"), k.to("meta")):
        assert "meta" in refused(ask)
    assert "meta" in refused(lambda: attend(q.to("meta"), k.to("meta"), v.to("meta"), at))


def test_axes_in_another_order_raise_an_error(name):
    case = case_of(name)
    at = case.scheme().at(case.with_axes(Geometry.causal(5)))
    x, (q, k, v) = case.embeddings(2, 5), random_qkv(2, 5)
    for _, ask in ask_all(at, x.transpose(0, 1), q.transpose(1, 2), k.transpose(1, 2)):
        refused(ask)
    refused(lambda: attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), at))


@pytest.mark.where(lambda name: {"width", "heads", "head_width"} & set(catalog.options(case_of(name).kind)))
def test_other_numbers_of_channels_and_heads_raise_an_error(name):
    case = case_of(name)
    scheme = case.scheme()
    at, options = scheme.at(case.with_axes(Geometry.causal(5))), catalog.options(case.kind)
    asked = [size for size in ("width", "heads", "head_width") if size in options]
    for size in asked:
        assert getattr(scheme, size) == SIZES[size], f"keep {size} as an attribute: what comes is checked against it"
    if "width" in options and "embed" in scheme.hooks:
        assert str(WIDTH) in refused(lambda: at.embed(torch.randn(2, 5, WIDTH + 4 - scheme.appended_width).double()))
        assert str(WIDTH) in refused(lambda: at.embed(torch.randn(2, 5, 1).double()))
    if "head_width" in options:
        wide = torch.randn(2, HEADS, 5, HEAD_WIDTH + 4, dtype=torch.float64)
        assert str(HEAD_WIDTH) in refused(lambda: at.encode(wide, wide))
    if "heads" in options:
        x = torch.randn(2, HEADS - 1, 5, HEAD_WIDTH, dtype=torch.float64)
        assert str(HEADS) in refused(lambda: at.encode(x, x))
        assert str(HEADS) in refused(lambda: attend(x, x, x, at))


def test_in_place_changes_of_results_have_no_effect(name):
    case = case_of(name)
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(5))
    before = {hook: out.clone() for hook, out in hook_outputs(scheme, where).items()}
    with torch.no_grad():
        for out in hook_outputs(scheme, where).values():
            out.add_(101)
    for hook, out in hook_outputs(scheme, where).items():
        assert torch.equal(out, before[hook]), f"{hook} remembers what it returned"


def test_training_works_after_inference_mode(name):
    case = case_of(name)
    model, where, x = case.model(), case.with_axes(Geometry.causal(5)), case.embeddings(2, 5)
    with torch.inference_mode():
        inferred = model(x, where).clone()
    out = model(x.requires_grad_(), where)
    assert torch.allclose(out.detach(), inferred, atol=1e-12, rtol=0)
    out.square().sum().backward()
    assert x.grad.isfinite().all()
