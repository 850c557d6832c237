"""Whatever is given to what is public: a right result, or an error of our own."""

import traceback
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ordinate
from ordinate import Geometry, Scheme, attend, catalog, explain
from ordinate.flex import mask_mod, score_mod
from ordinate.testing.case import HEAD_WIDTH, HEADS, SIZES, WIDTH, Case

SOURCE = Path(ordinate.__file__).parent
NAMES = catalog.names("ordinate.schemes")
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
TYPES += [torch.complex64]
pytestmark = pytest.mark.usefixtures("untyped")
often = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

shapes = st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, HEAD_WIDTH, WIDTH]), max_size=5)
words = st.sampled_from([None, "", "half", "nonsense", b"x", object(), [], [1, 2], {}, (), torch.nn.Identity()])
numbers = st.sampled_from([0, 1, 2, 3, 7, -1, 2**40, 0.0, 0.5, -2.5, 1e300, float("nan"), float("inf"), True, 2j])


@st.composite
def tensors(draw):
    """A tensor of any shape and type."""
    made = torch.randn(draw(shapes), generator=torch.Generator().manual_seed(0)).mul(3)
    dtype = draw(st.sampled_from(TYPES))
    return made.to(dtype).to("meta") if draw(st.integers(0, 9)) == 9 else made.to(dtype)


anything = st.one_of(tensors(), tensors(), numbers, words)


def tried(ask):
    """What came of it, or None where an error of our own was raised; any other error is a failure."""
    try:
        return ask()
    except (ValueError, TypeError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if SOURCE not in Path(last.filename).parents or not str(error):
            raise AssertionError(f"{last.filename}:{last.lineno} raised {error!r}") from error
        return None


def spoil(data, sound):
    """The arguments, up to two of them replaced by anything."""
    wrong = data.draw(st.lists(st.sampled_from(sorted(sound)), max_size=2, unique=True), label="spoilt")
    return {name: data.draw(anything, label=name) if name in wrong else value for name, value in sound.items()}


def scheme_named(data):
    name = data.draw(st.sampled_from(NAMES), label="scheme")
    return Case(catalog.load("ordinate.schemes", Scheme, name))


def placed(data, case, dtype=torch.float64):
    where = data.draw(
        st.sampled_from([Geometry.causal(5), Geometry.full(5), Geometry.padded(torch.ones(2, 5).tril(3).bool())])
    )
    return case.scheme(dtype).at(case.place(where))


@often
@given(st.data())
def test_attention_is_right_or_refuses(data):
    dtype = data.draw(st.sampled_from(TYPES[:3]))
    at = placed(data, scheme_named(data), dtype)
    q, k, v = torch.randn(3, 2, HEADS, 5, HEAD_WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)
    sound = {"q": q, "k": k, "v": v, "at": at, "scale": None, "dropout": 0.0, "route": None}
    spoilt = spoil(data, sound)
    out = tried(lambda: attend(**spoilt))
    told = tried(lambda: explain(**spoilt))
    assert (out is None) == (told is None)
    if out is not None:
        q, v = spoilt["q"], spoilt["v"]
        assert out.shape == (*q.shape[:3], v.shape[3])
        assert out.dtype == q.dtype
        if not spoilt["dropout"] and q.numel():
            plain = attend(**(spoilt | {"route": "reference"}))
            assert torch.allclose(out.double(), plain.double(), atol=0.1, rtol=0.1, equal_nan=True)


@often
@given(st.data())
def test_marking_is_right_or_refuses(data):
    case = scheme_named(data)
    at = placed(data, case)
    width = WIDTH - at.scheme.claims
    x, (q, k) = torch.randn(2, 5, width).double(), torch.randn(2, 2, HEADS, 5, HEAD_WIDTH).double()
    x = spoil(data, {"x": x})["x"]
    marked = tried(lambda: at.embed(x))
    if marked is not None:
        assert marked.shape == (*x.shape[:2], x.shape[2] + at.scheme.claims)
        assert marked.dtype == x.dtype
    both = spoil(data, {"q": q, "k": k})
    encoded = tried(lambda: at.encode(**both))
    if encoded is not None:
        for came, went in zip(encoded, both.values(), strict=True):
            assert came.shape[:3] == went.shape[:3]
            assert came.dtype == went.dtype


@often
@given(st.data())
def test_a_scheme_stands_at_a_geometry_or_refuses(data):
    scheme = scheme_named(data).scheme()
    where = data.draw(st.one_of(anything, st.builds(Geometry.causal, st.integers(0, 80)), grids()))
    at = tried(lambda: scheme.at(where))
    if at is not None:
        bias = at.bias
        assert bias is None or bias.shape[2:] == where.shape
        assert bias is None or bool(bias.isfinite().all())
        tried(lambda: score_mod(at))
        mask_mod(where)


def grids():
    return st.lists(st.integers(0, 3), min_size=1, max_size=4).map(lambda sizes: Geometry.grid(*sizes))


GEOMETRIES = {
    Geometry: {"q_pos": torch.arange(3)[None, :, None], "k_pos": torch.arange(4)[None, :, None], "window": 2},
    Geometry.causal: {"tokens": 3, "cached": 2, "window": None},
    Geometry.full: {"tokens": 3, "window": None},
    Geometry.cross: {"queries": 3, "keys": 4, "real": torch.ones(2, 4).bool()},
    Geometry.packed: {"lengths": [2, 3], "window": 2},
    Geometry.padded: {"real": torch.ones(2, 4).bool(), "window": None},
    Geometry.given: {"pos": torch.arange(3)[None, :, None], "window": None},
}


@often
@given(st.data())
def test_a_geometry_is_built_or_refused(data):
    build = data.draw(st.sampled_from(list(GEOMETRIES)), label="constructor")
    spoilt = spoil(data, GEOMETRIES[build])
    # a geometry of 2^40 tokens is too large for the machine, not wrong
    assume(not any(type(value) is int and value == 2**40 for value in spoilt.values()))
    where = tried(lambda: build(**spoilt))
    if where is not None and not where.q_pos.is_meta:
        assert where.visible.shape[1:] == where.shape
        assert where.offset.shape[1:3] == where.shape
        assert where.block(slice(1, 2)).shape[1] == where.shape[1]


@settings(often, max_examples=200)
@given(st.data())
def test_a_scheme_is_built_or_refused(data):
    kind = scheme_named(data).kind
    sound = catalog.bind(kind, {}, SIZES)
    known = {name: option.default for name, option in catalog.options(kind).items()} | sound
    assume(known)
    wrong = data.draw(st.sampled_from(sorted(known)), label="option")
    # a table of 2^40 rows is no mistake of the scheme's
    value = data.draw(st.one_of(numbers.filter(lambda number: number != 2**40), words), label="value")
    tried(lambda: kind(**(sound | {wrong: value})))
