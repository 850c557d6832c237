"""The Triton kernels for vectors by offset on a CPU, in Triton's interpreter: run by test_triton.py elsewhere.

    export TRITON_INTERPRET=1
    python -m pytest -W ignore::RuntimeWarning tests/attention/backends/triton_content_interpreted.py

bfloat16 is left out: the interpreter rounds it wrongly.
"""

import importlib
from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch

from ordinate import Geometry, attend, attend_encoded, explain
from ordinate.attention import ScoreOptions, _proof_case, _proof_structure, attend_with_lse
from ordinate.attention._attend import BACKENDS, STANDARD
from ordinate.attention._backend import AttentionCall
from ordinate.ops.relative import Projection
from ordinate.ops.triton import attention, vector_operators, vector_sums, vectors
from ordinate.schemes import (
    T5,
    Alibi,
    Cope,
    Deberta,
    Encoded,
    HeadGroups,
    Music,
    Shaw,
    Sum,
    TransformerXl,
)
from ordinate.schemes.deberta import DebertaVersion
from ordinate.testing.backend import GEOMETRIES, assert_second_gradients_agree, random_qkv
from ordinate.testing.tolerance import assert_as_close
from tests.attention.backends.triton_interpreted import TYPES, mutate

SINKS = torch.tensor([0.5, -1.0])

# few heads: the interpreter runs one program after the other
SIZES = {"heads": 2, "head_width": 8}
BUCKETS = {"width": 12, "buckets": 4, "max_distance": 8}
SCHEMES = {
    "shaw": lambda: Shaw(head_width=8, past=3, future=2),
    "shaw, keys only": lambda: Shaw(**SIZES, per_head=True, values=False, past=0, future=20),
    "music": lambda: Music(**SIZES, max_length=9, out_of_range="zero", future=True),
    "transformer_xl": lambda: TransformerXl(**SIZES, width=12),
    "transformer_xl, clamped": lambda: TransformerXl(**SIZES, width=12, max_offset=6.5, layout="interleaved"),
    "deberta": lambda: Deberta(**SIZES, **BUCKETS),
    "deberta, mirrored": lambda: Deberta(**SIZES, **BUCKETS, terms="p2c", version=DebertaVersion(mirrored=True)),
    "sum": lambda: Sum(
        T5(heads=2, buckets=8, max_distance=12),
        Deberta(**SIZES, **BUCKETS),
        Shaw(head_width=8, past=3),
        TransformerXl(**SIZES, width=12, max_offset=6),
    ),
    "decaying": lambda: Sum(Alibi(heads=2), Shaw(**SIZES, per_head=True, past=3)),
    "heads": lambda: HeadGroups(
        Sum(Deberta(heads=1, head_width=8, **BUCKETS), Alibi(heads=1)), Shaw(head_width=8, past=3), heads=2
    ),
}


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret


def made(name):
    torch.manual_seed(0)
    scheme = SCHEMES[name]()
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return scheme


def inputs(where, dtype=torch.float32, **sizes):
    given = {"batch": where.batch_size, "heads": 2, "kv_heads": 1} | sizes
    return random_qkv(where, dtype=dtype, **given)


def results(name, scheme, where, given, options=STANDARD, compute=None):
    """Output and gradients, as by the backend of this name."""
    given = [x.detach().requires_grad_() for x in given]
    sinks = [] if options.sinks is None else [options.sinks.detach().to(given[0].dtype).requires_grad_()]
    options = replace(options, sinks=sinks[0]) if sinks else options
    if compute is None:
        out = attend(*given, scheme.at(where), backend=name, score_options=options)
    else:
        at = scheme.at(where)
        encoded = at.encode_all(*given[:2])
        out = compute(AttentionCall(encoded.q, encoded.k, given[2], at, given[0].shape[3] ** -0.5, 0.0, options))
    torch.manual_seed(1)
    upstream = torch.randn(*out.shape, dtype=torch.float64).to(out.dtype)
    learned = [x for x in scheme.parameters() if x.requires_grad]
    slopes = torch.autograd.grad(out, [*given, *sinks, *learned], upstream, allow_unused=True, materialize_grads=True)
    count = len(given) + len(sinks)
    found = {"output": out.detach(), "inputs": torch.cat([x.flatten() for x in slopes[:count]])}
    if learned:
        found["scheme"] = torch.cat([x.flatten() for x in slopes[count:]])
    return found


def assert_agrees(scheme, where, given, options=STANDARD, backend="triton"):
    """Output and gradients by the rule of the self-check: few numbers, whose error may be small by chance."""
    exact = results("reference", deepcopy(scheme).double(), where, [x.double() for x in given], options)
    usual = results("reference", scheme, where, given, options)
    coarse = results(None, scheme, where, given, options, _proof_case.coarse_attention)
    for name, one in results(backend, scheme, where, given, options).items():
        # kernels round the scores' gradients to the dtype of q: the worse of two plain formulas
        far = (usual[name] - exact[name]).abs() >= (coarse[name] - exact[name]).abs()
        plain = usual[name] if name == "output" else torch.where(far, usual[name], coarse[name])
        factor = 4.0 if name == "output" else 6.0
        assert_as_close(one, plain, exact[name], factor=factor, what=name)


@pytest.mark.parametrize(
    ("name", "geometry", "type"),
    [
        *(("sum", geometry, torch.float32) for geometry in GEOMETRIES),
        *(
            (name, geometry, torch.float32)
            for name in SCHEMES
            if name != "sum"
            for geometry in ("causal", "two sides")
        ),
        *((name, "causal", torch.float16) for name in SCHEMES),
        *((name, "left", torch.float16) for name in ("shaw", "deberta", "transformer_xl")),
    ],
)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    where = GEOMETRIES[geometry](35)
    assert_agrees(made(name), where, inputs(where, type))


@pytest.mark.parametrize(
    ("tokens", "width", "depth"), [(1, 16, 16), (5, 1, 3), (31, 40, 40), (33, 72, 8), (17, 8, 72)]
)
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width, depth):
    where = Geometry.causal(tokens, cached=3)
    q, k, _ = inputs(where, width=width)
    v = torch.randn(1, 1, tokens + 3, depth)
    for scheme in (
        TransformerXl(heads=2, head_width=width, width=6),
        Deberta(heads=2, head_width=width, **BUCKETS),
        Shaw(head_width=width, past=4, values=width == depth),
    ):
        assert_agrees(scheme, where, (q, k, v))


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Geometry.causal(80, cached=37), "transformer_xl"),
        (Geometry.causal(90, window=40), "deberta"),
        (Geometry.causal(40, cached=17), "shaw"),
        (Geometry.causal(33, cached=1), "deberta"),
        (Geometry.full(60), "shaw, keys only"),
        (Geometry.full(70, window=40), "sum"),
        (Geometry.cross(50, 41), "deberta"),
        # the last tile of queries, or of keys, is not full, and lies beyond the vectors
        (Geometry.cross(40, 90), "shaw"),
        (Geometry.cross(90, 40), "shaw"),
        (Geometry.packed([30, 3, 40]), "shaw"),
        (Geometry.packed([5, 40, 30], causal=False), "transformer_xl"),
    ],
    ids=lambda given: None if isinstance(given, Geometry) else given,
)
def test_it_agrees_over_many_tiles(where, name):
    assert_agrees(made(name), where, inputs(where, kv_heads=2))


@pytest.mark.parametrize(("geometry", "type"), [("causal", TYPES[0]), ("left", TYPES[0]), ("causal", TYPES[1])])
@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta"])
@pytest.mark.parametrize("formula", [{"softcap": 0.7}, {"sinks": SINKS}, {"softcap": 20.0, "sinks": SINKS}])
def test_caps_and_sinks_agree_forward_and_backward(formula, name, geometry, type):
    where = GEOMETRIES[geometry](21)
    assert_agrees(made(name), where, inputs(where, type), ScoreOptions(**formula))


def test_nan_in_a_query_that_sees_nothing_stays_there_beside_sinks():
    """With a sink the log-sum-exp of such a query is finite, and far tiles take what depends on it out of scores."""
    where, scheme = Geometry.padded(torch.arange(60) >= torch.tensor([[25]])), made("shaw")
    q, k, v = (x.detach() for x in inputs(where))
    q[:, :, :25] = float("nan")
    given = [x.requires_grad_() for x in (q, k, v)]
    out = attend(*given, scheme.at(where), backend="triton", score_options=ScoreOptions(sinks=SINKS))
    assert (out[:, :, :25] == 0).all()
    slopes = torch.autograd.grad(out[:, :, 25:].square().sum(), [*given, *scheme.parameters()])
    assert all(x.isfinite().all() for x in (out, *slopes))


def test_frozen_vectors_have_no_gradient_and_queries_keep_theirs():
    where, scheme = Geometry.causal(20), made("sum")
    usual = results("triton", scheme, where, inputs(where))
    for part in ("parts.0", "parts.1"):
        scheme.get_submodule(part).requires_grad_(False)
    given = inputs(where)
    assert_agrees(scheme, where, given)
    assert set(results("triton", scheme.requires_grad_(False), where, given)) == set(usual) - {"scheme"}


def test_queries_without_visible_keys_give_zero_and_no_gradient():
    where = Geometry(torch.arange(40)[None, :, None], torch.arange(5)[None, :, None], window=3, consecutive=True)
    q, k, v = inputs(where)
    for name in ("deberta", "shaw", "transformer_xl"):
        out = attend(q, k, v, made(name).at(where), backend="triton")
        assert (out[:, :, 8:] == 0).all()
        (slope,) = torch.autograd.grad(out.square().sum(), q)
        assert (slope[:, :, 8:] == 0).all()
        assert_agrees(made(name), where, (q, k, v))


@pytest.mark.parametrize("name", ["shaw", "deberta", "transformer_xl"])
def test_nan_in_a_document_stays_there_forward_and_backward(name):
    """Documents share tiles, so a weight of zero meets NaN in products, and documents share the vectors."""
    where, scheme = Geometry.packed([20, 15]), made(name)
    clean = [x.detach() for x in inputs(where)]
    for part in range(3):
        dirty = [x.clone() for x in clean]
        dirty[part][:, :, 22:24] = torch.tensor([float("nan"), float("inf")])[:, None]
        found = []
        for given in (clean, dirty):
            given = [x.clone().requires_grad_() for x in given]
            out = attend(*given, scheme.at(where), backend="triton")
            wanted = [*given, *scheme.parameters()]
            found.append((out, *torch.autograd.grad(out[:, :, :20].square().sum(), wanted, allow_unused=True)))
        for one, other in zip(found[0][:4], found[1][:4], strict=True):
            assert one[:, :, :20].equal(other[:, :, :20])
        assert all(a is b or a.equal(b) for a, b in zip(found[0][4:], found[1][4:], strict=True))
        hurt = found[1][0][0, :, 20:].isnan()
        seen = torch.arange(20, 35) >= 22 if part else (torch.arange(20, 35) - 22) // 2 == 0
        assert hurt.equal(seen[None, :, None].expand_as(hurt)), part


def test_the_log_sum_exp_is_that_of_the_reference():
    where, options = GEOMETRIES["left"](30), ScoreOptions(sinks=SINKS)
    q, k, v = (x.detach() for x in inputs(where))
    scheme = made("sum")
    _, lse = attend_with_lse(q, k, v, scheme.at(where), backend="triton", score_options=options)
    _, usual = attend_with_lse(q, k, v, scheme.at(where), backend="reference", score_options=options)
    wide = deepcopy(scheme).double().at(where), [x.double() for x in (q, k, v)]
    _, exact = attend_with_lse(*wide[1], wide[0], backend="reference", score_options=options)
    assert_as_close(lse, usual, exact)


def test_strided_inputs_other_sequences_and_another_call_change_no_bit():
    where, scheme = Geometry.causal(35), made("sum")

    def computed(given, upstream):
        given = [x.detach().requires_grad_() for x in given]
        out = attend(*given, scheme.at(where), backend="triton")
        return out, *torch.autograd.grad(out, [*given, *scheme.parameters()], upstream, allow_unused=True)

    upstream = torch.randn(2, 35, 2, 8).transpose(1, 2)
    fused = torch.randn(2, 35, 2, 24).transpose(1, 2)
    strided = [fused[..., :8], fused[:, ::2, :, 8:16], torch.randn(1, 1, 35, 16).expand(2, 1, 35, 16)[..., ::2]]
    usual = computed([x.contiguous() for x in strided], upstream.contiguous())
    for _ in range(2):
        again = computed(strided, upstream)
        assert all(a is b or a.equal(b) for a, b in zip(again, usual, strict=True))
    alone = computed([x[:1] for x in strided], upstream[:1])
    assert all(a[:1].equal(b) for a, b in zip(usual[:4], alone[:4], strict=True))


@pytest.mark.parametrize(
    ("make", "geometry"),
    [
        (lambda: Shaw(head_width=8, past=3, future=2), "window"),
        (lambda: TransformerXl(heads=4, head_width=8, width=12), "causal"),
        (lambda: Deberta(heads=4, head_width=8, **BUCKETS), "left"),
        (lambda: Sum(Alibi(heads=4), Shaw(head_width=8, past=3)), "causal"),
    ],
)
def test_second_gradients_agree_with_the_reference(make, geometry, monkeypatch):
    monkeypatch.setattr("ordinate.attention._double_backward.MAX_BLOCK_SCORES", 200)
    given = {"score_options": ScoreOptions(2.0, torch.randn(4).requires_grad_())}
    assert_second_gradients_agree("triton", make(), GEOMETRIES[geometry](13), torch.float32, **given)


def test_the_operators_say_the_right_shapes_and_strides():
    q, k, v = (x.detach() for x in inputs(Geometry.causal(20), batch=2))
    others = [torch.randn(2, 39), SINKS, torch.randn(1, 39, 8), *torch.randn(2, 2, 39, 8).unbind(), None, None]
    given = others, [1, 0, 0, 19, 0], [0.3, 0.0]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.ordinate.triton_vectors.default, (q, k, v, *given), test_utils=checks)
    out, *results = vector_operators.attention(q, k, v, *given)
    saved = torch.randn_like(out), [q, k, v, out, *results]
    backward = torch.ops.ordinate.triton_vectors_backward.default
    for learned in ([True] * 4, [False, True, False, True]):
        torch.library.opcheck(backward, (*saved, *given, learned), test_utils=checks)


@pytest.mark.parametrize(
    ("scheme", "where", "says"),
    [
        (Cope(head_width=8), Geometry.causal(17), "the scheme has no vector for each offset"),
        (Sum(Shaw(head_width=8), Cope(head_width=8)), Geometry.causal(17), "no vector for each offset"),
        (
            Shaw(head_width=8),
            Geometry.from_positions(torch.arange(17)[None, :, None]),
            "depends on more than the offset in memory order",
        ),
    ],
)
def test_unsupported_calls_are_rejected_with_a_reason(scheme, where, says):
    q, k, v = inputs(where)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme.at(where), backend="triton")


def test_it_is_explained_and_checks_the_vectors():
    where = Geometry.causal(17)
    q, k, v = inputs(where)
    told = explain(q, k, v, made("shaw").at(where), backend="triton")
    assert "a band of vectors by offset" in told.way
    assert told.workspace_bytes < 10_000
    with pytest.raises(ValueError, match="relative position vectors must have as many heads as the queries"):
        attend_encoded(Encoded(*inputs(where, width=4)[:2]), v, made("shaw").at(where), backend="triton")


def bound_deberta():
    """A scheme that uses parts of the weights of a layer, which are no leaves."""
    scheme = Deberta(**SIZES, **BUCKETS, version=DebertaVersion(shared=True))
    weight = torch.nn.Linear(12, 32).weight
    return scheme.bind_projections(Projection(weight[:16], None), Projection(weight[16:], torch.randn(16)))


@pytest.mark.parametrize("make", [lambda: made("shaw"), lambda: made("transformer_xl"), bound_deberta])
def test_the_self_check_covers_it(make, monkeypatch):
    monkeypatch.setattr(_proof_structure, "SIZES", ((48, 128),))
    monkeypatch.setattr(_proof_structure, "BEYOND", 20)
    where = Geometry.causal(17)
    call = AttentionCall(*(x.detach() for x in inputs(where)), make().at(where), 8**-0.5, 0.0, ScoreOptions())
    assert _proof_case.disagreement(BACKENDS["triton"], call, gradients=True) is None


@pytest.mark.parametrize("entries", [1, 2, 5, 9, 40])
def test_sums_beyond_the_ends_belong_to_the_ends(entries):
    sums, lowest, origin = torch.randn(2, 3, 4, 2, 4, 5), -2, 6
    expected = torch.zeros(2, entries, 5)
    for distance in range(4):
        for half in range(2):
            for x in range(4):
                entry = (lowest + distance) * 4 + origin + x - (4 if half == 0 else 0)
                expected[:, min(max(entry, 0), entries - 1)] += sums[:, :, distance, half, x].sum(1)
    assert torch.allclose(vector_sums.join(sums, lowest, origin, entries), expected, atol=1e-5)


@pytest.mark.parametrize(("causal", "window"), [(True, 0), (True, 20), (False, 20), (False, 0)])
@pytest.mark.parametrize(("origin", "last"), [(3, 3), (3, 6), (1, 1), (20, 24)])
@pytest.mark.parametrize("start", [0, 1, 7])
def test_the_summed_distances_are_those_of_tiles_with_what_the_ends_leave(start, origin, last, causal, window):
    """Of all visible pairs between the ends; and of no tile that the kernels take to be wholly beyond one."""
    size, (queries, keys) = 4, (30, 37)
    q, k = torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, keys, 4)
    # as for a scheme that is constant beyond a distance on both sides of a query's own key
    ends = origin - start, last if not causal else origin
    base = attention.Problem(q, k, k, *5 * [None], causal, start, window, ends[0], True, 1.0, 0.0)
    lowest, highest = vectors.summed_distances(base, size, ends[1])
    offset = torch.arange(keys) - torch.arange(queries)[:, None]
    seen = offset <= start if causal else offset == offset
    if window:
        seen = seen & (offset > start - window) & ((offset < start + window) | causal)
    entry, apart = offset + ends[0], torch.arange(keys) // size - torch.arange(queries)[:, None] // size
    # first and last entry of the pairs of a tile
    beyond = (apart * size + size - 1 + ends[0] <= 0) | (
        (apart * size - size + 1 + ends[0] >= ends[1]) & (not causal)
    )
    summed = (apart >= lowest) & (apart <= highest)
    inside = seen & (entry > 0) & (entry < ends[1])
    assert summed[inside].all()
    assert summed[seen & ~beyond].all()
    assert not (summed & beyond & seen).any()


# file, what stands there, what stands there in the mutant, and the scheme that finds it
MUTANTS = [
    ("bands", "upper = x <= token", "upper = x < token", "deberta"),
    ("bands", "else token + x < FORM.rows", "else token + x <= FORM.rows", "shaw"),
    ("bands", "SIGN: tl.constexpr = 1 if KEYS_FIRST else -1", "SIGN: tl.constexpr = 1", "shaw"),
    ("bands", "AXIS: tl.constexpr = 1 if BY_KEY == KEYS_FIRST else 0", "AXIS: tl.constexpr = 1", "deberta"),
    ("bands", "SIGN: tl.constexpr = -1 if BY_KEY else 1", "SIGN: tl.constexpr = 1", "deberta"),
    ("bands", "upper = is_upper(b, a, FORM", "upper = is_upper(a, b, FORM", "deberta"),
    ("bands", "(band, head, first - FORM.rows, last)", "(band, head, first - FORM.rows + 1, last)", "music"),
    ("bands", "lower = load_half(band, head, first - FORM.rows,", "lower = load_half(band, head, first,", "shaw"),
    ("bands", "lower.dtype), lower, sums", "lower.dtype), upper, sums", "shaw"),
    ("bands", "FORM.biased and vectors.asked is None", "FORM.biased", "transformer_xl"),
    ("bands", "numbers[None, :] if", "numbers[:, None] if", "transformer_xl"),
    ("bands", "else numbers[:, None]", "else numbers[None, :]", "transformer_xl"),
    ("skewing", "after = x <= z", "after = x < z", "deberta"),
    ("skewing", "after = x + z < SIZE", "after = x + z <= SIZE", "shaw"),
    ("skewing", "(ROWS * a + COLUMNS * b) &", "(ROWS * a + COLUMNS * b + 1) &", "shaw"),
    ("vector_ends", "found = poison + times_vector(", "found = poison + 0 * times_vector(", "transformer_xl"),
    ("vector_ends", "found = poison + times_vector(", "found = poison + 0 * times_vector(", "deberta, long"),
    ("vector_ends", "entry, FORM, False) * LOG2E\n    if", "entry, FORM, False)\n    if", "shaw"),
    ("vector_ends", "shift += tl.load(bias.table", "shift += 0 * tl.load(bias.table", "sum"),
    ("vector_ends", "norm - query_shift(", "norm + 0 * query_shift(", "shaw"),
    ("vector_ends", "delta -= times_vector(", "delta -= 0 * times_vector(", "shaw"),
    ("vector_forward", "add_vectors(made, weights,", "add_vectors(made, score,", "shaw"),
    ("vector_forward", "nothing, top + of_query)", "nothing, top)", "shaw"),
    ("vector_forward", "made += far[:, None]", "made += 0 * far[:, None]", "shaw"),
    ("vector_forward", "far + total * tl.exp2(", "far + 0 * total * tl.exp2(", "full"),
    ("vector_forward", "begin - tile * SIZE + bias.origin", "begin + bias.origin", "shaw"),
    ("vector_forward", "higher = tl.maximum(top, tl.max(score, 1))", "higher = tl.max(score, 1)", "shaw"),
    ("vector_forward", "(low, begin), ends.past", "(low, begin), ends.future", "shaw"),
    ("vector_backward", "tile * SIZE - begin + bias.origin", "begin - tile * SIZE + bias.origin", "music"),
    ("vector_backward", "add_vectors(beside, change,", "add_vectors(beside, weights,", "deberta"),
    ("vector_backward", "beside + changes[:, None]", "beside + 0 * changes[:, None]", "transformer_xl"),
    ("vector_backward", "beside + changes[:, None]", "beside + 0 * changes[:, None]", "deberta, long"),
    ("vector_backward", "slope += read_band(", "slope += 0 * read_band(", "shaw"),
    ("vector_backward", "seen = seen & (level < INFINITY)", "seen = seen", "nan"),
    ("vector_backward", "(stop, whole), ends.past", "(begin, whole), ends.past", "shaw"),
    ("vector_backward", "bounds = begin, stop, whole, high", "bounds = begin, stop, high, high", "shaw"),
    ("vector_queries", "add_vectors(beside, change,", "add_vectors(beside, inner,", "capped"),
    ("vector_queries", "to_lone += times_keys(change, keys)", "to_lone += times_keys(inner, keys)", "capped lone"),
    ("vector_queries", "to_lone = tl.sum(to_queries, 0)", "to_lone = tl.max(to_queries, 0)", "transformer_xl"),
    ("vector_queries", "beside += changes[:, None]", "beside += 0 * changes[:, None]", "shaw"),
    ("vector_queries", "to_held += tl.sum(to_queries, 0)", "to_held = tl.sum(to_queries, 0)", "deberta, full"),
    (
        "vector_queries",
        "to_held += times_keys(change, keys)",
        "to_held = times_keys(change, keys)",
        "capped deberta, long",
    ),
    ("vector_queries", "shares += tl.sum(weights, 1)", "shares += tl.sum(change, 1)", "shaw"),
    ("vector_queries", "tl.sum(changes[:, None] * queries", "tl.sum(shares[:, None] * queries", "shaw"),
    ("vector_queries", "tl.store(at + 3 * LONGEST, tl.sum(changes, 0))", "tl.store(at + 3 * LONGEST, 0.0)", "sum"),
    ("bands", "near, FORM.rows)), high)", "near, FORM.rows) + FORM.rows), high)", "shaw"),
    ("bands", "(first - bias.origin + 1, future)", "(first - bias.origin + FORM.rows, future)", "shaw"),
    ("bands", "future = first + bias.origin - bias.last", "future = first + bias.origin", "full"),
    ("vector_sums", "factors, pairs = upstream, weights", "factors, pairs = upstream, change", "shaw"),
    ("vector_sums", "factors, pairs = keys, change", "factors, pairs = queries, change", "deberta"),
    ("vector_sums", "under += tl.sum(lower, 1)", "under += tl.sum(upper, 1)", "transformer_xl"),
    ("vector_sums", "above = tl.dot(upper.", "above = tl.dot(lower.", "music"),
    ("vector_sums", "first = (lowest - 1) *", "first = lowest *", "transformer_xl"),
    ("vectors", "return low // size,", "return low // size + 2,", "transformer_xl"),
    ("vectors", "high = min(high, given.start)", "high = min(high, given.start) - size", "transformer_xl"),
    ("vectors", "last - 1 - given.origin)", "last - 1 - given.origin) - size", "deberta, full"),
    ("vectors", "_replace(window=WIDEST)", "_replace(window=0)", "cross"),
    ("vector_forward", "== 0.0, of_query, 0.0)", "== 0.0, of_query, of_query)", "hidden"),
]


@pytest.mark.parametrize(("file", "text", "other", "case"), MUTANTS, ids=lambda x: x if x.isidentifier() else "")
def test_a_mutant_is_killed(file, text, other, case, monkeypatch, tmp_path):
    where, options = Geometry.causal(37, cached=5), STANDARD
    if case.startswith("capped"):
        options = ScoreOptions(softcap=0.5)
    if case.endswith("full"):
        where = Geometry.full(37)
    if case.endswith("long"):
        where = Geometry.causal(80)
    if case == "cross":
        where = Geometry.cross(40, 90)
    names = {
        "capped": "shaw",
        "capped lone": "transformer_xl",
        "nan": "shaw",
        "full": "shaw",
        "cross": "shaw",
        "hidden": "shaw",
        "deberta, long": "deberta",
        "capped deberta, long": "deberta",
        "deberta, full": "deberta",
    }
    scheme = made(names.get(case, case))
    given = inputs(where)
    mutate(file, text, other, monkeypatch, tmp_path)
    tests = {
        "nan": partial(test_nan_in_a_document_stays_there_forward_and_backward, "shaw"),
        "hidden": test_nan_in_a_query_that_sees_nothing_stays_there_beside_sinks,
    }
    with pytest.raises(AssertionError):
        tests.get(case, partial(assert_agrees, scheme, where, given, options))()
