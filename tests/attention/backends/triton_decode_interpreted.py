"""The decoding kernels on a CPU, in Triton's interpreter: run by test_triton.py in a process of its own.

    export TRITON_INTERPRET=1
    python -m pytest -W ignore::RuntimeWarning tests/attention/backends/triton_decode_interpreted.py

bfloat16 is left out: the interpreter rounds it wrongly.
"""

import importlib
import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions, attend_with_lse
from ordinate.attention._attend import BACKENDS, STANDARD
from ordinate.attention._backend import AttentionCall
from ordinate.attention._proof_case import disagreement
from ordinate.ops.triton import attention, decode, operators
from ordinate.testing.backend import random_qkv
from ordinate.testing.tolerance import assert_as_close
from tests.attention.backends.triton_interpreted import SCHEMES, SINKS, TYPES, mutate


def left_padded(keys, queries):
    """The newest tokens of two texts, of which one is shorter and padded on the left."""
    real = torch.arange(keys) >= torch.tensor([[0], [keys // 2 + 3]])
    return Geometry.padded(real).block(slice(keys - queries, keys))


# in the interpreter a program has 64 keys
PLACES = {
    "newest": Geometry.causal(1, cached=149),
    "few": Geometry.causal(5, cached=66),
    "window": Geometry.causal(2, cached=190, window=90),
    "left": left_padded(100, 3),
    "packed": Geometry.packed([60, 70, 9]).block(slice(123, 139)),
    "cross": Geometry.cross(3, 70),
    "two sides": Geometry.full(150, window=40).block(slice(70, 74)),
    "short": Geometry.causal(1, cached=1),
}


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret


@pytest.fixture
def runs(monkeypatch):
    """How often keys were split among programs."""
    counted, launch = [], decode.launch
    monkeypatch.setattr(decode, "launch", lambda *given: counted.append(given[1]) or launch(*given))
    return counted


def inputs(where, dtype=torch.float32, **sizes):
    given = {"batch": where.batch_size, "heads": 4, "kv_heads": 2} | sizes
    return [x.detach() for x in random_qkv(where, dtype=dtype, **given)]


def assert_it_agrees(scheme, where, given, options=STANDARD):
    """Output by the rule of all backends, and the log-sum-exp within the rounding of float32."""

    def results(backend, scheme, q, k, v):
        return attend_with_lse(q, k, v, scheme.at(where), backend=backend, score_options=options)

    with torch.no_grad():
        made, usual = results("triton", scheme, *given), results("reference", scheme, *given)
        exact = results("reference", deepcopy(scheme).double(), *(x.double() for x in given))
    # of few numbers: the error of one order of summation is small by chance
    assert_as_close(made[0], usual[0], exact[0], factor=4)
    assert torch.allclose(made[1], exact[1].float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "fire"])
def test_it_agrees_with_the_reference(name, place, type, runs):
    where = PLACES[place]
    assert_it_agrees(SCHEMES[name](), where, inputs(where, type))
    assert len(runs) == 2


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("place", ["newest", "few", "left"])
@pytest.mark.parametrize("name", ["none", "t5"])
@pytest.mark.parametrize("formula", [{"softcap": 0.7}, {"sinks": SINKS}, {"softcap": 20.0, "sinks": SINKS}])
def test_caps_and_sinks_agree(formula, name, place, type, runs):
    where = PLACES[place]
    assert_it_agrees(SCHEMES[name](), where, inputs(where, type), ScoreOptions(**formula))
    assert len(runs) == 2


@pytest.mark.parametrize(("kv_heads", "width", "depth"), [(1, 40, 3), (4, 1, 72), (2, 100, 16)])
def test_groups_of_heads_and_odd_widths(kv_heads, width, depth, runs):
    where = Geometry.causal(7, cached=60)
    q, k, _ = inputs(where, kv_heads=kv_heads, width=width)
    assert_it_agrees(SCHEMES["t5"](), where, (q, k, torch.randn(1, kv_heads, 67, depth)))
    # rows are those of all heads that share keys: here in more than one tile
    assert runs[0] == (2, kv_heads, math.ceil(7 * 4 / kv_heads / 16))


def test_chunks_that_a_window_hides_have_no_program(runs):
    where = Geometry.causal(1, cached=1000, window=65)
    assert_it_agrees(SCHEMES["alibi"](), where, inputs(where))
    assert runs[0][0] == 2


def test_more_chunks_than_are_joined_at_a_time(runs):
    where = Geometry.causal(1, cached=1100)
    assert_it_agrees(SCHEMES["none"](), where, inputs(where, heads=1, kv_heads=1))
    assert runs[0][0] == 18


def test_it_is_taken_for_few_queries_without_gradients_and_explained(runs):
    for where, learned, says in (
        (Geometry.causal(16, cached=1), False, "chunks of keys: at most 16 queries"),
        (Geometry.causal(17, cached=9), False, "tiles of queries"),
        (Geometry.causal(3), False, "tiles of queries"),
        (Geometry.causal(3, cached=9), True, "tiles of queries: gradients are needed"),
    ):
        q, k, v = inputs(where)
        q.requires_grad_(learned)
        at = SCHEMES["alibi"]().at(where)
        assert explain(q, k, v, at, backend="triton").way.startswith(says)
        runs.clear()
        attend(q, k, v, at, backend="triton")
        assert bool(runs) == says.startswith("chunks")
    q, k, v = inputs(Geometry.causal(1, cached=149))
    told = explain(q, k, v, SCHEMES["alibi"]().at(Geometry.causal(1, cached=149)), backend="triton")
    # four rows and three chunks of eight channels and a log-sum-exp
    assert told.workspace_bytes == 4 * (4 + 4 * 3 * 9) + 4 * 8


def test_nan_and_infinity_reach_those_that_see_them_and_no_others():
    where = Geometry.packed([60, 70, 9]).block(slice(125, 139))
    clean = inputs(where)
    with torch.no_grad():
        scheme = SCHEMES["t5"]()
        usual = attend(*clean, scheme.at(where), backend="triton")
        for part in (1, 2):
            dirty = [x.clone() for x in clean]
            # the first text is over; keys of the second are seen by its last queries
            dirty[part][:, :, 3], dirty[part][:, :, 100] = float("nan"), float("inf")
            out = attend(*dirty, scheme.at(where), backend="triton")
            assert out[:, :, :5].isnan().all()
            assert out[:, :, 5:].equal(usual[:, :, 5:])
        dirty = [x.clone() for x in clean]
        dirty[0][:, :, 7, 0] = float("inf")
        hurt = attend(*dirty, scheme.at(where), backend="triton").isnan().all(-1)[0, 0]
        assert hurt.nonzero().tolist() == [[7]]


def test_queries_that_see_nothing_give_zero_whatever_they_contain():
    where = Geometry(torch.arange(5)[None, :, None], torch.arange(70)[None, :, None], window=3, start=90)
    q, k, v = inputs(where)
    q[:, :, 1] = float("nan")
    with torch.no_grad():
        out, lse = attend_with_lse(q, k, v, SCHEMES["none"]().at(where), backend="triton")
    assert (out == 0).all()
    assert (lse == -math.inf).all()


def test_other_rows_heads_and_queries_and_strides_change_no_bit():
    where, scheme = Geometry.causal(3, cached=130), SCHEMES["alibi"]()
    q, k, v = inputs(where, batch=2)
    cache = torch.randn(2, 400, 2, 8).transpose(1, 2)
    cache[:, :, :133] = k
    with torch.no_grad():
        usual = attend(q, k, v, scheme.at(where), backend="triton")
        assert attend(q, k, v, scheme.at(where), backend="triton").equal(usual)
        assert attend(q, cache[:, :, :133], v, scheme.at(where), backend="triton").equal(usual)
        assert attend(q[:1], k[:1], v[:1], scheme.at(where), backend="triton").equal(usual[:1])
        newest = Geometry.causal(1, cached=132)
        assert attend(q[:, :, 2:], k, v, scheme.at(newest), backend="triton").equal(usual[:, :, 2:])


def test_a_bias_that_depends_on_the_query_is_left_to_other_backends():
    given = *inputs(Geometry.causal(1, cached=30)), SCHEMES["fire"]().at(Geometry.causal(1, cached=30))
    with pytest.raises(ValueError, match="the bias depends on more than the offset"):
        attend(*given, backend="triton")
    assert explain(*given).backend != "triton"


def test_the_operator_says_the_right_shapes_and_strides():
    q, k, v = inputs(Geometry.causal(2, cached=20))
    given = [torch.randn(4, 39), None, SINKS, *5 * [None]], [1, 20, 0, 19, 0], [0.3, 0.0]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.ordinate.triton_decode.default, (q, k, v, *given), test_utils=checks)
    for one, other in zip(operators.decode(q, k, v, *given), operators.attention(q, k, v, *given)[:2], strict=True):
        assert one.stride() == other.stride()
        assert torch.allclose(one, other, atol=1e-5)


def call(name, where, **options):
    q, k, v = inputs(where)
    at = SCHEMES[name]().at(where)
    return AttentionCall(q, k, v, at, 8**-0.5, 0.0, ScoreOptions(**options))


def test_the_self_check_covers_it(runs):
    asked = call("t5", Geometry.causal(1, cached=149), sinks=SINKS)
    assert disagreement(BACKENDS["triton"], asked, gradients=False) is None
    # 513 keys of the small case, twice: output and log-sum-exp
    assert [grid[0] for grid in runs[::2]] == [9, 9]


# what stands there, what stands there in the mutant
MUTANTS = [
    ("total += 1.0", "total += 0.0"),
    ("shrunk = tl.exp2(top - pivot)", "shrunk = tl.exp2(top - top)"),
    ("top + tl.log2(total)", "top + total"),
    ("tl.minimum(tl.cdiv(where.keys - begin, COLUMNS), TILES_OF_CHUNK)", "tl.cdiv(where.keys - begin, COLUMNS)"),
    ("key_head * FORM.groups + row % FORM.groups", "key_head * FORM.groups"),
    ("row // queries % heads", "row % heads"),
    ("tl.where(seen, score, -INFINITY)", "score"),
    ("mask=chunk < chunks, other=-INFINITY", "mask=chunk < chunks - 1, other=-INFINITY"),
]


@pytest.mark.parametrize(("text", "other"), MUTANTS)
def test_the_self_check_kills_a_mutant(text, other, monkeypatch, tmp_path):
    asked = call("t5", Geometry.causal(3, cached=149), sinks=SINKS)
    mutate("decode", text, other, monkeypatch, tmp_path)
    assert "differs from that of the reference" in disagreement(BACKENDS["triton"], asked, gradients=False)


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("keys", [64, 65, 300])
@pytest.mark.parametrize(("causal", "window"), [(True, 0), (True, 70), (False, 70), (False, 0)])
def test_the_chunks_hold_every_visible_key(queries, keys, causal, window):
    start = keys - queries - 20
    q, k = torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, keys, 4)
    given = attention.Problem(q, k, k, *5 * [None], causal, start, window, 0, False, 1.0, 0.0)
    chunks = decode.visible_chunks(given, 64)
    where = replace(Geometry.full(keys, window=window or None).block(slice(start, start + queries)), is_causal=causal)
    seen = where.visible[0].any(0).nonzero().flatten()
    assert chunks == range(int(seen.min()) // 64, int(seen.max()) // 64 + 1)
