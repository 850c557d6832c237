"""The rows of the table that apply to any scheme, on every scheme of the catalog."""

import re
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ordinate
from ordinate import Geometry, Scheme, attend, catalog
from ordinate.testing.case import HEAD_WIDTH, HEADS, SIZES, WIDTH, Case, drawn, marks

SOURCE = Path(ordinate.__file__).parent
NAMES = catalog.names("ordinate.schemes")
NAN, INF = float("nan"), float("inf")
pytestmark = [pytest.mark.usefixtures("untyped"), pytest.mark.parametrize("name", NAMES)]


def case_of(name):
    return Case(catalog.load("ordinate.schemes", Scheme, name))


def refused(ask):
    """The error of our own that this raises, which says what must hold, what came and what to do."""
    with pytest.raises((ValueError, TypeError)) as caught:
        ask()
    last = traceback.extract_tb(caught.tb)[-1]
    assert SOURCE in Path(last.filename).parents, f"{last.filename} raised it: {caught.value}"
    assert re.search(r".{8,}?; .+; .{4,}", str(caught.value), re.DOTALL), f"it does not say all three: {caught.value}"
    return str(caught.value)


def uses(scheme, *hooks):
    if not set(hooks) & set(scheme.hooks):
        pytest.skip(f"it has no {' or '.join(hooks)}")


def ask_all(at, x, q, k):
    """What each place of a scheme that meets a model's tensors would be asked."""
    if "embed" in at.scheme.hooks:
        yield "x", lambda: at.embed(x)
    yield "q", lambda: at.encode(q, k)


@pytest.mark.parametrize("wrong", [0, -1])
@pytest.mark.parametrize("size", ["width", "heads", "head_width", "max_length", "layers"])
def test_a_size_below_one_is_refused(name, size, wrong):
    case = case_of(name)
    bound = catalog.bind(case.kind, {}, SIZES)
    if size not in bound:
        pytest.skip(f"it does not ask for {size}")
    assert str(wrong) in refused(lambda: case.kind(**(bound | {size: wrong})))


def test_an_odd_head_width_is_refused_or_served(name):
    case = case_of(name)
    bound = catalog.bind(case.kind, {}, SIZES)
    if "head_width" not in bound:
        pytest.skip("it does not ask for head_width")
    try:
        scheme = case.kind(**(bound | {"head_width": 7}))
    except ValueError:
        assert "7" in refused(lambda: case.kind(**(bound | {"head_width": 7})))
        return
    at = scheme.at(case.place(Geometry.causal(5)))
    q, k, v = torch.randn(3, 2, HEADS, 5, 7)
    out = attend(*at.encode(q, k), v, at)
    assert out.shape == (2, HEADS, 5, 7)
    assert out.isfinite().all()


@pytest.mark.parametrize("wrong", [0, -1.0, NAN, INF])
def test_a_base_that_is_no_positive_number_is_refused(name, wrong):
    case = case_of(name)
    if "theta" not in catalog.options(case.kind):
        pytest.skip("it has no theta")
    bound = catalog.bind(case.kind, {}, SIZES)
    assert "theta" in refused(lambda: case.kind(**(bound | {"theta": wrong})))


def test_an_unknown_option_is_refused(name):
    kind = case_of(name).kind
    assert "no option of" in refused(lambda: catalog.bind(kind, {"does_not_exist": 1}, SIZES))


def test_an_option_of_another_type_is_refused(name):
    case = case_of(name)
    bound = catalog.bind(case.kind, {}, SIZES)
    for option in catalog.options(case.kind):
        wrong = bound | {option: "does not exist"}
        with pytest.raises((ValueError, TypeError), match=r"does not exist|must be|needs"):
            case.kind(**wrong)


def test_a_geometry_of_other_tokens_is_refused(name):
    case = case_of(name)
    at = case.scheme().at(case.place(Geometry.causal(6)))
    q, k, v = drawn(2, 5)
    assert "5" in refused(lambda: at.encode(q, k))
    assert "6" in refused(lambda: attend(q, k, v, at))
    real = torch.ones(3, 5).bool()
    at = case.scheme().at(case.place(Geometry.padded(real)))
    assert "3" in refused(lambda: at.encode(q, k))
    assert "3" in refused(lambda: attend(q, k, v, at))


@pytest.mark.parametrize("pos", [-1, -1000])
def test_a_negative_position_is_refused_or_served(name, pos):
    case = case_of(name)
    scheme, x = case.scheme(), case.vectors(2, 4)
    there = case.place(Geometry.given(torch.tensor([pos, 0, 1, 5])[None, :, None]))
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
def test_a_position_that_is_not_finite_is_refused(name, wrong):
    case = case_of(name)
    pos = torch.tensor([0.0, wrong, 2.0], dtype=torch.float64)[None, :, None]
    refused(lambda: case.scheme().at(case.place(Geometry.given(pos))))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_far_from_the_beginning_costs_rounding_only(name, dtype):
    case = case_of(name)
    limit = case.scheme().max_length
    start = 70_000 if limit is None else limit - 4
    where = case.place(Geometry.given(torch.arange(start, start + 4)[None, :, None]))
    # parameters rounded in the same way, everything else in float64
    narrow = marks(case.scheme(torch.float64).to(dtype).double(), where)
    rounded = case.scheme(torch.float64).to(dtype)
    try:
        came = marks(rounded, where, dtype)
    except ValueError:
        assert str(dtype).removeprefix("torch.") in refused(lambda: marks(rounded, where, dtype))
        return
    for hook, out in came.items():
        exact = narrow[hook]
        assert out.isfinite().all(), f"{hook} is not finite"
        error = (out.double() - exact).abs().max() / exact.abs().max().clamp(min=1.0)
        # a few roundings in the type of the model
        assert error <= 16 * torch.finfo(dtype).eps, f"{hook} is off by {error:.2g} of its size"


def test_integer_activations_are_refused(name):
    case = case_of(name)
    at = case.scheme().at(case.place(Geometry.causal(5)))
    x, (q, k, _) = case.vectors(2, 5), drawn(2, 5)
    for what, ask in ask_all(at, x.long(), q.long(), k.long()):
        assert f"{what} needs floating-point numbers; got torch.int64" in refused(ask)


def test_input_on_another_device_is_refused(name):
    case = case_of(name)
    at = case.scheme().at(case.place(Geometry.causal(5)))
    x, (q, k, v) = case.vectors(2, 5), drawn(2, 5)
    for _, ask in ask_all(at, x.to("meta"), q.to("meta"), k.to("meta")):
        assert "meta" in refused(ask)
    assert "meta" in refused(lambda: attend(q.to("meta"), k.to("meta"), v.to("meta"), at))


def test_axes_in_another_order_are_refused(name):
    case = case_of(name)
    at = case.scheme().at(case.place(Geometry.causal(5)))
    x, (q, k, v) = case.vectors(2, 5), drawn(2, 5)
    for _, ask in ask_all(at, x.transpose(0, 1), q.transpose(1, 2), k.transpose(1, 2)):
        refused(ask)
    refused(lambda: attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), at))


def test_other_numbers_of_channels_and_heads_are_refused(name):
    case = case_of(name)
    scheme = case.scheme()
    at, options = scheme.at(case.place(Geometry.causal(5))), catalog.options(case.kind)
    asked = [size for size in ("width", "heads", "head_width") if size in options]
    for size in asked:
        assert getattr(scheme, size) == SIZES[size], f"keep {size} as an attribute: what comes is checked against it"
    if "width" in options:
        uses(scheme, "embed")
        assert str(WIDTH) in refused(lambda: at.embed(torch.randn(2, 5, WIDTH + 4 - scheme.claims).double()))
        assert str(WIDTH) in refused(lambda: at.embed(torch.randn(2, 5, 1).double()))
    if "head_width" in options:
        wide = torch.randn(2, HEADS, 5, HEAD_WIDTH + 4, dtype=torch.float64)
        assert str(HEAD_WIDTH) in refused(lambda: at.encode(wide, wide))
    if "heads" in options:
        x = torch.randn(2, HEADS - 1, 5, HEAD_WIDTH, dtype=torch.float64)
        assert str(HEADS) in refused(lambda: at.encode(x, x))
        assert str(HEADS) in refused(lambda: attend(x, x, x, at))
    if not asked:
        pytest.skip("it asks for none of these sizes")


def test_writing_to_what_it_returns_changes_nothing(name):
    case = case_of(name)
    scheme, where = case.scheme(), case.place(Geometry.causal(5))
    before = {hook: out.clone() for hook, out in marks(scheme, where).items()}
    with torch.no_grad():
        for out in marks(scheme, where).values():
            out.add_(101)
    for hook, out in marks(scheme, where).items():
        assert torch.equal(out, before[hook]), f"{hook} remembers what it returned"


def test_training_follows_inference(name):
    case = case_of(name)
    model, where, x = case.model(), case.place(Geometry.causal(5)), case.vectors(2, 5)
    with torch.inference_mode():
        inferred = model(x, where).clone()
    out = model(x.requires_grad_(), where)
    assert torch.allclose(out.detach(), inferred, atol=1e-12, rtol=0)
    out.square().sum().backward()
    assert x.grad.isfinite().all()
