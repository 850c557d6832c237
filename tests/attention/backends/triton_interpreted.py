"""The Triton kernels on a CPU, in Triton's interpreter: run by test_triton.py in a process of its own.

    TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/attention/backends/triton_interpreted.py

bfloat16 is left out: the interpreter rounds it wrongly.
"""

import importlib
import pkgutil
import sys
from functools import partial

import pytest
import torch

import ordinate.ops.triton
from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions, _proof_structure
from ordinate.attention._attend import BACKENDS
from ordinate.attention._backend import AttentionCall
from ordinate.attention._proof_case import disagreement
from ordinate.ops.triton import attention, operators
from ordinate.schemes import T5, Alibi, Fire, Kerple, NoPosition, Rope, Sum, Toeplitz
from ordinate.testing.backend import GEOMETRIES, assert_agrees, assert_second_gradients_agree, random_qkv
from ordinate.testing.tolerance import assert_as_close

TYPES = [torch.float32, torch.float16]
SINKS = torch.tensor([0.5, -1.0, 2.0, 30.0])


@pytest.fixture(autouse=True)
def _interpreted():
    assert importlib.import_module("triton").knobs.runtime.interpret


def t5():
    scheme = T5(heads=4, buckets=8, max_distance=12)
    torch.nn.init.normal_(scheme.table)
    return scheme


def toeplitz():
    scheme = Toeplitz(heads=4, max_length=200)
    torch.nn.init.normal_(scheme.table)
    return scheme


def small_qkv(where, dtype):
    """As few sequences and heads as show what may go wrong: the interpreter runs one program after the other."""
    return random_qkv(where, batch=where.batch_size, heads=4, kv_heads=2, dtype=dtype)


SCHEMES = {
    "none": NoPosition,
    "alibi": lambda: Alibi(heads=4),
    "slopes": lambda: Alibi(heads=4, direction="separate", trainable=True),
    "t5": t5,
    "kerple": lambda: Kerple(heads=4),
    "toeplitz": toeplitz,
    # the lengths of most queries are below the threshold, and of some above it
    "fire": lambda: Fire(heads=4, threshold=20),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    if (name, geometry) == ("fire", "newest"):
        pytest.skip("a decoding step of FIRE is left to other backends")
    where = GEOMETRIES[geometry](35)
    assert_agrees("triton", SCHEMES[name](), where, *small_qkv(where, type))


@pytest.mark.parametrize(("tokens", "width"), [(1, 16), (5, 1), (31, 40), (33, 72), (64, 80), (65, 96), (63, 100)])
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width):
    for type, geometry, name in (
        (TYPES[0], "causal", "t5"),
        (TYPES[1], "window", "alibi"),
        (TYPES[0], "left", "none"),
    ):
        # of one token the gradient of the table is nothing but rounding
        scheme = SCHEMES["none" if tokens == 1 else name]()
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("triton", scheme, where, *random_qkv(where, batch=2, width=width, dtype=type))


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Geometry.causal(130, cached=37), "t5"),
        (Geometry.causal(120, window=50), "t5"),
        (Geometry.full(97), "t5"),
        (Geometry.full(97, window=40), "slopes"),
        (Geometry.cross(70, 41), "toeplitz"),
        (Geometry.packed([70, 3, 40]), "t5"),
        # masked tiles that lie farther beyond the ends of the table than it is padded
        (Geometry.packed([330, 20]), "t5"),
        (Geometry.packed([5, 60, 40], causal=False), "alibi"),
        (Geometry.causal(130, cached=37), "fire"),
        (Geometry.full(97, window=40), "fire"),
        (Geometry.packed([70, 3, 40]), "fire"),
    ],
    ids=lambda given: None if isinstance(given, Geometry) else given,
)
def test_it_agrees_over_many_tiles(where, name):
    assert_agrees("triton", SCHEMES[name](), where, *random_qkv(where, batch=1, dtype=torch.float32))


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("depth", [3, 40])
def test_groups_of_heads_and_other_widths_of_values(kv_heads, depth):
    where = Geometry.causal(35)
    q, k, _ = random_qkv(where, kv_heads=kv_heads, dtype=torch.float32)
    v = torch.randn(2, kv_heads, 35, depth).requires_grad_()
    assert_agrees("triton", t5(), where, q, k, v)


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", ["causal", "full", "window", "packed", "cached"])
@pytest.mark.parametrize("name", ["none", "t5", "slopes", "fire"])
@pytest.mark.parametrize("formula", [{"softcap": 0.7}, {"sinks": SINKS}, {"softcap": 20.0, "sinks": SINKS}])
def test_caps_and_sinks_agree_forward_and_backward(formula, name, geometry, type):
    where = GEOMETRIES[geometry](35)
    assert_agrees("triton", SCHEMES[name](), where, *small_qkv(where, type), ScoreOptions(**formula))


def decaying(where, type=torch.float32):
    """Small queries, so that heads that look near need few keys."""
    q, k, v = random_qkv(where, batch=1, heads=4, kv_heads=2, dtype=type)
    return (0.3 * q.detach()).requires_grad_(), k, v


@pytest.mark.parametrize("formula", [{}, {"softcap": 2.0, "sinks": SINKS}], ids=["plain", "formula"])
@pytest.mark.parametrize("where", [Geometry.causal(160), Geometry.causal(90, cached=70, window=155)], ids=str)
def test_keys_that_decay_makes_negligible_are_not_read(where, formula, monkeypatch):
    needed, find = [], attention.needed_keys
    monkeypatch.setattr(attention, "needed_keys", lambda *given: needed.append(find(*given)) or needed[-1])
    assert_agrees("triton", SCHEMES["slopes"](), where, *decaying(where), ScoreOptions(**formula))
    # several tiles of 16 keys; the backward pass is given what the forward pass has found
    assert len(needed) == 1
    assert needed[0][0, 0, -1] > 40


@pytest.mark.parametrize("type", TYPES)
def test_without_negligible_keys_results_are_the_same_to_the_last_digit(type, monkeypatch):
    where, scheme, find = Geometry.causal(160), SCHEMES["slopes"](), attention.needed_keys
    inputs, upstream, results = decaying(where, type), torch.randn(1, 4, 160, 8), []
    for share in (1, 0):
        monkeypatch.setattr(attention, "needed_keys", lambda *given, share=share: share * find(*given))
        out = attend(*inputs, scheme.at(where), backend="triton")
        results.append([out, *torch.autograd.grad(out, [*inputs, *scheme.parameters()], upstream.to(type))])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=2 * torch.finfo(one.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("hurt", ["k", "v"])
def test_nan_far_behind_reaches_those_that_see_it(hurt):
    where = Geometry.causal(160)
    q, k, v = (x.detach() for x in decaying(where))
    (k if hurt == "k" else v)[:, 0, 3] = float("nan")
    out = attend(q, k, v, SCHEMES["alibi"]().at(where), backend="triton")
    assert out[:, :2, 3:].isnan().all()
    assert not out[:, :2, :3].isnan().any()
    assert not out[:, 2:].isnan().any()


def test_soft_caps_are_exact_for_very_large_and_very_small_products():
    where = Geometry.full(40)
    for size in (1e-4, 1e-1, 1.0, 100.0):
        q, k, v = random_qkv(where, batch=1, dtype=torch.float32)
        q = (q.detach() * size).requires_grad_()
        assert_agrees("triton", NoPosition(), where, q, k, v, ScoreOptions(softcap=3.0))


def test_queries_without_visible_keys_give_zero_and_no_gradient():
    where = Geometry(torch.arange(70)[None, :, None], torch.arange(5)[None, :, None], window=3, consecutive=True)
    q, k, v = random_qkv(where, dtype=torch.float32)
    for name in SCHEMES:
        out = attend(q, k, v, SCHEMES[name]().at(where), backend="triton")
        assert (out[:, :, 8:] == 0).all()
        (slope,) = torch.autograd.grad(out.square().sum(), q)
        assert (slope[:, :, 8:] == 0).all()
        # of 5 keys the gradient of the bias of FIRE's last layer is nothing but rounding
        if name != "fire":
            assert_agrees("triton", SCHEMES[name](), where, q, k, v)


def test_nan_in_a_document_stays_there_forward_and_backward():
    """Documents share tiles, so a weight of zero meets NaN in products."""
    where, scheme = Geometry.packed([20, 15, 30]), t5()
    inputs = [x.detach() for x in random_qkv(where, batch=1, dtype=torch.float32)]
    clean = [x.clone().requires_grad_() for x in inputs]
    for name, x in zip("qkv", inputs, strict=True):
        dirty = [y.clone() for y in inputs]
        dirty["qkv".index(name)][:, :, 22:24] = torch.tensor([float("nan"), float("inf")])[:, None]
        dirty = [y.requires_grad_() for y in dirty]
        rest = torch.arange(x.shape[2]) // 35 + torch.arange(x.shape[2]) // 20 != 1
        results = []
        for given in (clean, dirty):
            out = attend(*given, scheme.at(where), backend="triton")
            results.append((out, *torch.autograd.grad(out[:, :, rest].square().sum(), given)))
        for one, other in zip(*results, strict=True):
            assert one[:, :, rest].equal(other[:, :, rest])
        hurt = results[1][0][0, :, 20:35].isnan()
        seen = torch.arange(20, 35) >= 22 if name != "q" else (torch.arange(20, 35) - 22 < 2) & (torch.arange(15) > 1)
        assert hurt.equal(seen[None, :, None].expand_as(hurt)), name


@pytest.mark.parametrize("name", ["none", "t5"])
def test_nan_in_a_query_that_sees_nothing_stays_there_beside_sinks(name):
    """With a sink the log-sum-exp of such a query is finite."""
    where, options = Geometry.padded(torch.arange(60) >= torch.tensor([[25]])), ScoreOptions(sinks=SINKS)
    q, k, v = (x.detach() for x in random_qkv(where, batch=1, dtype=torch.float32))
    q[:, :, :25] = float("nan")
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out = attend(*inputs, SCHEMES[name]().at(where), backend="triton", score_options=options)
    assert (out[:, :, :25] == 0).all()
    slopes = torch.autograd.grad(out[:, :, 25:].square().sum(), inputs)
    assert all(x.isfinite().all() for x in (out, *slopes))


def test_the_log_sum_exp_is_that_of_the_reference():
    from ordinate.attention import attend_with_lse

    where, options = Geometry.padded(torch.arange(40) >= torch.tensor([[0], [17]])), ScoreOptions(sinks=SINKS)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    for given in ({}, {"score_options": options}):
        out, lse = attend_with_lse(q, k, v, t5().at(where), backend="triton", **given)
        _, usual = attend_with_lse(q, k, v, t5().at(where), backend="reference", **given)
        assert lse.shape == usual.shape
        assert out.shape == v[:, :1].expand(-1, 4, -1, -1).shape
    torch.manual_seed(0)
    scheme = t5()
    _, lse = attend_with_lse(q, k, v, scheme.at(where), backend="triton")
    _, usual = attend_with_lse(q, k, v, scheme.at(where), backend="reference")
    _, exact = attend_with_lse(q.double(), k.double(), v.double(), scheme.double().at(where), backend="reference")
    assert_as_close(lse, usual, exact)


def test_strided_inputs_and_other_rows_of_the_batch_change_no_bit():
    where, scheme = Geometry.causal(35), t5()

    def results(inputs, upstream):
        inputs = [x.detach().requires_grad_() for x in inputs]
        out = attend(*inputs, scheme.at(where), backend="triton")
        return out, *torch.autograd.grad(out, [*inputs, scheme.table], upstream)

    upstream = torch.randn(2, 35, 4, 8).transpose(1, 2)
    fused = torch.randn(2, 35, 4, 24).transpose(1, 2)
    strided = [fused[..., :8], fused[:, ::2, :, 8:16], torch.randn(1, 1, 35, 16).expand(2, 2, 35, 16)[..., ::2]]
    usual = results([x.contiguous() for x in strided], upstream.contiguous())
    assert all(a.equal(b) for a, b in zip(results(strided, upstream), usual, strict=True))
    alone = results([x[:1] for x in strided], upstream[:1])
    assert all(a[:1].equal(b) for a, b in zip(usual[:4], alone[:4], strict=True))


def test_compositions_keep_the_form_of_the_bias():
    where = Geometry.causal(40)
    for scheme in (Sum(Rope(head_width=8), Alibi(heads=4)), Sum(Rope(head_width=8), t5())):
        assert_agrees("triton", scheme, where, *random_qkv(where, batch=1, dtype=torch.float32))


@pytest.mark.parametrize("geometry", ["causal", "window", "left", "cached"])
@pytest.mark.parametrize("name", ["none", "slopes", "t5", "fire"])
def test_second_gradients_agree_with_the_reference(name, geometry, monkeypatch):
    monkeypatch.setattr("ordinate.attention._double_backward.MAX_BLOCK_SCORES", 200)
    given = {"score_options": ScoreOptions(2.0, torch.randn(4).requires_grad_())}
    assert_second_gradients_agree("triton", SCHEMES[name](), GEOMETRIES[geometry](21), torch.float32, **given)


def test_the_operators_say_the_right_shapes_and_strides():
    q, k, v = (x.detach() for x in random_qkv(Geometry.causal(20), dtype=torch.float32))
    checks = ("test_schema", "test_faketensor")
    curve = torch.rand(4, 9), torch.rand(1, 20), torch.tensor([0.1, 0.2, float("inf"), float("inf")])
    for biases, knots in (
        ((torch.randn(4, 39), None, SINKS, None, None), None),
        ((None, torch.rand(2, 4), SINKS, None, None), None),
        ((None, None, SINKS, *curve[:2]), curve[2]),
    ):
        given = [*biases, None, None, knots], [1, 0, 0, 19, 0], [0.3, 0.0]
        torch.library.opcheck(torch.ops.ordinate.triton_attention.default, (q, k, v, *given), test_utils=checks)
        out, *results = operators.attention(q, k, v, *given)
        saved = torch.randn_like(out), [q, k, v, out, *results]
        backward = torch.ops.ordinate.triton_attention_backward.default
        torch.library.opcheck(backward, (*saved, *given, True), test_utils=checks)


def test_unsupported_calls_are_rejected_with_a_reason():
    where = Geometry.causal(3)
    for type, width, says in ((torch.float64, 8, "float64"), (torch.float32, 257, "more than 256 channels")):
        q, k, v = random_qkv(where, width=width, dtype=type)
        with pytest.raises(ValueError, match=says):
            attend(q, k, v, NoPosition().at(where), backend="triton")
    q, k, v = random_qkv(where, dtype=torch.float32)
    with pytest.raises(ValueError, match="dropout is not supported"):
        attend(q, k, v, NoPosition().at(where), dropout=0.5, backend="triton")
    assert explain(q, k, v, t5().at(where), backend="triton").workspace_bytes < 4000


# file, what stands there, what stands there in the mutant, and the case that finds it
MUTANTS = [
    ("scores", "behind >= 0", "behind > 0", "t5"),
    ("scores", "behind < where.window", "behind <= where.window", "window"),
    ("scores", "(place + c - r)", "(place + c - r + 1)", "t5"),
    ("scores", "tl.maximum(place, -FORM.columns)", "place", "long"),
    ("attention", "kept.table[:, TABLE_PADDING:]", "kept.table[:, TABLE_PADDING + 1 :]", "t5"),
    ("scores", "added = -behind *", "added = -1.1 * behind *", "slopes"),
    ("scores", "x + x * y * series", "x", "formula"),
    ("ranges", "round_up(whole, SIZE)", "round_down(whole, SIZE)", "window"),
    ("ranges", "- second + end", "- second", "t5"),
    ("ranges", "past = first - bias.origin + 1", "past = first - bias.origin + 17", "t5"),
    ("ranges", "past = first + COLUMNS - 1 + bias.origin", "past = first - 1 + bias.origin", "t5"),
    ("forward", "made * shrunk[:, None]", "made", "t5"),
    ("forward", "top + tl.log2(total)", "top + total", "t5"),
    ("forward", "        total += 1.0", "        total += 0.0", "formula"),
    ("forward", " & (poison == 0.0)", "", "nan"),
    ("backward", "    to_keys *= where.scale\n", "", "t5"),
    ("backward", "    to_queries *= where.scale\n", "", "t5"),
    ("backward", "entry <= 0", "entry < 0", "t5"),
    ("backward", "real = norm < INFINITY", "real = i < where.queries", "nan"),
    ("backward", "tl.minimum(-distance, 0.0)", "tl.minimum(distance, 0.0)", "slopes"),
    ("backward", "change *= 1.0 - squashed * squashed", "change *= 1.0", "formula"),
    ("diagonals", "r[:, None] + c[None, :] < SIZE", "r[:, None] + c[None, :] <= SIZE", "t5"),
    ("diagonals", "-origin - (lowest - 1) * sums", "1 - origin - (lowest - 1) * sums", "t5"),
    ("diagonals", "above + mine + SIZE", "above + mine", "t5"),
    ("rows", "made * upstream", "made", "t5"),
    ("rows", " + tl.sum(values * 0.0, 1)", "", "nan"),
    ("spans", "index + 1", "index", "packed"),
    ("needed", "SHARE + slope / 2", "slope / 2", "decay"),
    ("scores", "if FORM.sunk and MASKED:", "if False:", "hidden"),
    ("decay", "* tile.rows", "* tile.rows // 2", "decay"),
    ("ranges", "head * where.span_head", "head", "decay"),
    ("scores", "curve_place(first, begin, curve,", "curve_place(first + 300, begin, curve,", "fire"),
    ("curves", "tl.min(shares, 0)", "tl.max(shares, 0)", "lengths"),
    ("curves", "ahead - FORM.columns + 1,", "ahead,", "fire"),
    ("curves", "(knots < highest)", "(knots < lowest)", "fire"),
    ("curves", "bias.curve.batch + i", "bias.curve.batch + tl.maximum(i - 1, 0)", "fire"),
    ("curves", "of_shares += tl.sum(pull * steps, 1)", "of_shares += tl.sum(pull, 1)", "fire"),
    ("curves", "far * inverse_of(grown, FORM)", "far", "fire"),
    ("curves", " - (index == beyond - 1).to(tl.float32)", "", "fire"),
    ("curves", "tl.where(past, change * tl.load(table + beyond), pull)", "pull", "fire"),
    ("curves", "own, along = tl.zeros_like(own), tl.zeros_like(along)", "own, along = own, along", "fire"),
    ("curves", "            piece = low\n", "", "fire"),
    ("backward", "levels, slopes = end_run(levels, slopes, (own, along, piece), FORM)", "levels = levels", "fire"),
    ("backward", "ahead *= load_curve(bias, batch, head, i, where, FORM)[0]", "ahead *= 1.0", "fire"),
    ("attention", "shares.stride(0) if len(shares) > 1 else 0", "0", "documents"),
]


@pytest.mark.parametrize(("file", "text", "other", "case"), MUTANTS, ids=lambda x: x if x.isidentifier() else "")
def test_a_mutant_is_killed(file, text, other, case, monkeypatch, tmp_path):
    where, options = Geometry.causal(70, cached=5), ScoreOptions()
    tests = {
        "nan": test_nan_in_a_document_stays_there_forward_and_backward,
        "hidden": partial(test_nan_in_a_query_that_sees_nothing_stays_there_beside_sinks, "none"),
    }
    if case in tests:
        mutate(file, text, other, monkeypatch, tmp_path)
        with pytest.raises(AssertionError):
            tests[case]()
        return
    if case == "packed":
        where = Geometry.packed([40, 30])
    if case == "long":
        where = Geometry.packed([330, 20])
    if case == "window":
        where = Geometry.causal(70, window=40)
    if case == "formula":
        options = ScoreOptions(softcap=2.0, sinks=SINKS)
    if case == "documents":
        # positions of two sequences with other shares
        where = Geometry.padded(torch.arange(70) >= torch.tensor([[0], [45]]))
    kinds = dict.fromkeys(("slopes", "decay"), "slopes") | dict.fromkeys(("fire", "lengths", "documents"), "fire")
    scheme = SCHEMES[kinds.get(case, "t5")]()
    if case == "lengths":
        # the nearest future key is that of the last query, whose share is the smallest; and many pieces
        where = Geometry.full(70)
        scheme = Fire(heads=4, threshold=1, c=2.0)
        torch.nn.init.ones_(scheme.inner.weight)
        scheme.inner.bias.data = -torch.linspace(0, 1, 32)
    inputs = random_qkv(where, batch=where.batch_size, dtype=torch.float32)
    if case == "decay":
        where = Geometry.causal(160)
        inputs = decaying(where)
    mutate(file, text, other, monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        assert_agrees("triton", scheme, where, *inputs, options)


FAR = "end = tl.load(bias.table + head.to(tl.int64) * bias.pitch) * LOG2E"


@pytest.mark.parametrize("reach", [128, 256])
def test_the_self_check_kills_a_mutant_of_far_tiles_at_any_reach(reach, monkeypatch, tmp_path):
    # the interpreter's tiles are small
    monkeypatch.setattr(_proof_structure, "BEYOND", 100)
    where = Geometry.causal(2 * reach)
    q, k, v = (x.detach() for x in random_qkv(where, batch=1, heads=1, kv_heads=1, dtype=torch.float32))
    call = AttentionCall(q, k, v, T5(heads=1, max_distance=reach).at(where), 0.3, 0.0, ScoreOptions())
    assert disagreement(BACKENDS["triton"], call, gradients=False) is None
    mutate("scores", FAR, FAR.replace("end =", "end = 3.0 +"), monkeypatch, tmp_path)
    assert "its output differs" in disagreement(BACKENDS["triton"], call, gradients=False)


def mutate(file, text, other, monkeypatch, folder):
    """Replace a text of a file of the kernels, and what it defines wherever that is imported."""
    for part in pkgutil.iter_modules(ordinate.ops.triton.__path__):
        importlib.import_module(f"ordinate.ops.triton.{part.name}")
    module = sys.modules[f"ordinate.ops.triton.{file}"]
    with open(module.__file__, encoding="utf-8") as source:
        whole = source.read()
    assert text in whole
    changed = folder / f"{file}.py"
    changed.write_text(whole.replace(text, other), encoding="utf-8")
    namespace, before = {"__name__": module.__name__}, dict(vars(module))
    exec(compile(changed.read_text(encoding="utf-8"), changed, "exec"), namespace)
    for user in [m for name, m in sys.modules.items() if name.startswith("ordinate.ops.triton.")]:
        for name, value in namespace.items():
            # what was imported there stays
            own = getattr(getattr(value, "fn", value), "__module__", "") == module.__name__
            if own and not isinstance(value, type) and vars(user).get(name) is before[name]:
                monkeypatch.setattr(user, name, value)
