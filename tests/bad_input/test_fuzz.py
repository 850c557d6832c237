"""Fuzzing of the public interface: any input gives a correct result or an error of our own."""

import traceback
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ordinate
from ordinate import Geometry, attend, explain
from ordinate.core import catalog
from ordinate.schemes import Scheme
from ordinate.schemes._score_mod import mask_mod, score_mod
from ordinate.testing.case import HEAD_WIDTH, HEADS, SIZES, WIDTH, SchemeCase

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
    """Draw a tensor of any shape and dtype."""
    made = torch.randn(draw(shapes), generator=torch.Generator().manual_seed(0)).mul(3)
    dtype = draw(st.sampled_from(TYPES))
    return made.to(dtype).to("meta") if draw(st.integers(0, 9)) == 9 else made.to(dtype)


anything = st.one_of(tensors(), tensors(), numbers, words)


def tried(ask):
    """Return the result, or None if an error of our own was raised; any other error fails the test."""
    try:
        return ask()
    except (ValueError, TypeError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if SOURCE not in Path(last.filename).parents or not str(error):
            raise AssertionError(f"{last.filename}:{last.lineno} raised {error!r}") from error
        return None


def spoil(data, sound):
    """Replace up to two of the arguments by anything."""
    wrong = data.draw(st.lists(st.sampled_from(sorted(sound)), max_size=2, unique=True), label="spoilt")
    return {name: data.draw(anything, label=name) if name in wrong else value for name, value in sound.items()}


def scheme_named(data):
    name = data.draw(st.sampled_from(NAMES), label="scheme")
    return SchemeCase(catalog.load("ordinate.schemes", Scheme, name))


def placed(data, case, dtype=torch.float64):
    where = data.draw(
        st.sampled_from([Geometry.causal(5), Geometry.full(5), Geometry.padded(torch.ones(2, 5).tril(3).bool())])
    )
    return case.scheme(dtype).at(case.with_axes(where))


@often
@given(st.data())
def test_attention_is_correct_or_raises_our_error(data):
    dtype = data.draw(st.sampled_from(TYPES[:3]))
    case = scheme_named(data)
    at = placed(data, case, dtype)
    at.embed(case.embeddings(2, 5, dtype))
    q, k, v = torch.randn(3, 2, HEADS, 5, HEAD_WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)
    sound = {"q": q, "k": k, "v": v, "at": at, "scale": None, "dropout": 0.0, "backend": None}
    spoilt = spoil(data, sound)
    out = tried(lambda: attend(**spoilt))
    told = tried(lambda: explain(**spoilt))
    assert (out is None) == (told is None)
    if out is not None:
        q, v = spoilt["q"], spoilt["v"]
        assert out.shape == (*q.shape[:3], v.shape[3])
        assert out.dtype == q.dtype
        if not spoilt["dropout"] and q.numel():
            plain = attend(**(spoilt | {"backend": "reference"}))
            assert torch.allclose(out.double(), plain.double(), atol=0.1, rtol=0.1, equal_nan=True)


@often
@given(st.data())
def test_encoding_is_correct_or_raises_our_error(data):
    case = scheme_named(data)
    at = placed(data, case)
    width = WIDTH - at.scheme.appended_width
    x, (q, k) = torch.randn(2, 5, width).double(), torch.randn(2, 2, HEADS, 5, HEAD_WIDTH).double()
    x = spoil(data, {"x": x})["x"]
    marked = tried(lambda: at.embed(x))
    if marked is not None:
        assert marked.shape == (*x.shape[:2], x.shape[2] + at.scheme.appended_width)
        assert marked.dtype == x.dtype
    both = spoil(data, {"q": q, "k": k})
    encoded = tried(lambda: at.encode(**both))
    if encoded is not None:
        for came, went in zip(encoded.pair, both.values(), strict=True):
            assert came.shape[:3] == went.shape[:3]
            assert came.dtype == went.dtype


@often
@given(st.data())
def test_placing_a_scheme_works_or_raises_our_error(data):
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
    Geometry.from_positions: {"pos": torch.arange(3)[None, :, None], "window": None},
}


@often
@given(st.data())
def test_a_geometry_is_built_or_raises_our_error(data):
    build = data.draw(st.sampled_from(list(GEOMETRIES)), label="constructor")
    spoilt = spoil(data, GEOMETRIES[build])
    # a geometry of 2^40 tokens is valid, but too large for the machine
    assume(not any(type(value) is int and value == 2**40 for value in spoilt.values()))
    where = tried(lambda: build(**spoilt))
    if where is not None and not where.q_pos.is_meta:
        assert where.visible.shape[1:] == where.shape
        assert where.offset.shape[1:3] == where.shape
        assert where.block(slice(1, 2)).shape[1] == where.shape[1]


@settings(often, max_examples=200)
@given(st.data())
def test_a_scheme_is_built_or_raises_our_error(data):
    kind = scheme_named(data).kind
    sound = catalog.bind(kind, {}, SIZES)
    known = {name: option.default for name, option in catalog.options(kind).items()} | sound
    assume(known)
    wrong = data.draw(st.sampled_from(sorted(known)), label="option")
    # a table of 2^40 rows is not an error of the scheme
    value = data.draw(st.one_of(numbers.filter(lambda number: number != 2**40), words), label="value")
    tried(lambda: kind(**(sound | {wrong: value})))
