import inspect
import math
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions
from ordinate.attention._attend import BACKENDS
from ordinate.attention.backends import offset_bias, row_blocks
from ordinate.ops import sdpa
from ordinate.schemes import T5, Alibi, NoPosition, Shaw, TransformerXl
from ordinate.testing.backend import GEOMETRIES, assert_agrees, random_qkv
from ordinate.testing.tolerance import assert_as_close


def t5() -> T5:
    """T5 with a bias table large enough that a missing bias is detected."""
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


@pytest.fixture
def _small_blocks(monkeypatch):
    # so that backends for long sequences are used for short ones
    monkeypatch.setattr(offset_bias, "MIN_PAIRS", 0)
    monkeypatch.setattr(row_blocks, "MAX_BLOCK_SCORES", 30)


class Unsupported(Exception):
    """The backend does not support the call."""


def each_backend(test):
    """Run a test with every backend that supports its call, the reference among them."""

    @wraps(test)
    def with_each(**given):
        ran = []
        for name in BACKENDS:
            with suppress(Unsupported):
                test(backend=name, **given)
                ran.append(name)
        assert "reference" in ran

    signature = inspect.signature(test)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "backend"]
    with_each.__signature__ = signature.replace(parameters=parameters)
    return with_each


def attend_by(backend, q, k, v, at, **given):
    """Attention by this backend; raises `Unsupported` if it does not support the call."""
    try:
        explain(q, k, v, at, backend=backend, **given)
    except ValueError as error:
        if "it does not: " not in str(error):
            raise
        raise Unsupported from None
    return attend(q, k, v, at, backend=backend, **given)


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}
NAN, INF = float("nan"), float("inf")


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("geometry", ["causal", "full", "left", "cross"])
@pytest.mark.parametrize("name", SCHEMES)
def test_the_chosen_backend_agrees_with_the_reference(name, geometry, tokens, type):
    where = GEOMETRIES[geometry](tokens)
    assert_agrees(None, SCHEMES[name](), where, *random_qkv(where, dtype=type))


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_empty_inputs_give_an_empty_or_zero_result(batch, queries, keys):
    where = Geometry.cross(queries, keys)
    q, k, v = random_qkv(where, batch=batch, dtype=torch.float32)
    out = attend(q, k, v, Alibi(heads=4).at(where))
    assert out.shape == q.shape
    assert torch.equal(out, torch.zeros_like(out))


@pytest.mark.covering(1)
@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("type", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SCHEMES)
@each_backend
def test_a_query_without_visible_keys_gets_exactly_zero_and_no_gradient(name, type, backend):
    real = torch.tensor([[False, False, True, True, True], [True, True, True, True, True]])
    for where in (Geometry.padded(real), Geometry.padded(real, causal=False), Geometry.padded(real, window=2)):
        q, k, v = random_qkv(where, dtype=type)
        scheme = SCHEMES[name]()
        out = attend_by(backend, q, k, v, scheme.at(where))
        grads = torch.autograd.grad(out.sum() + out.square().sum(), [q, k, v, *scheme.parameters()])
        assert torch.equal(out[0, :, :2], torch.zeros_like(out[0, :, :2]))
        for grad in grads[:3]:
            assert torch.equal(grad[0, :, :2], torch.zeros_like(grad[0, :, :2]))
        assert all(bool(grad.isfinite().all()) for grad in grads)
        assert bool((grads[2][0, :, 2:] != 0).any())


def test_a_query_without_visible_keys_causes_no_nan_gradients():
    where = Geometry.padded(torch.tensor([[False, True, True]]))
    q, k, v = random_qkv(where, batch=1, dtype=torch.float32)
    with torch.autograd.set_detect_anomaly(True):
        attend(q, k, v, Alibi(heads=4).at(where), backend="reference").sum().backward()
    assert bool(q.grad.isfinite().all())


@pytest.mark.covering(1)
@pytest.mark.parametrize("bad", [NAN, INF, 1e30])
@pytest.mark.parametrize("geometry", ["causal", "window", "packed", "left", "right"])
@pytest.mark.parametrize("name", SCHEMES)
def test_hidden_values_never_reach_an_output(name, geometry, bad):
    where = GEOMETRIES[geometry](9)
    at = SCHEMES[name]().at(where)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    clean = attend(q, k, v, at, backend="reference")
    visible = where.visible.expand(2, 9, 9)
    for place in range(9):
        spoilt = [x.clone() for x in (q, k, v)]
        for x in spoilt:
            x[:, :, place] = bad
        out = attend(*spoilt, at)
        unaware = ~visible[:, :, place]
        unaware[:, place] = False
        for row in range(2):
            kept = out[row, :, unaware[row]]
            assert torch.allclose(kept, clean[row, :, unaware[row]], atol=1e-6, rtol=0), (place, row)


@pytest.mark.covering(1)
@pytest.mark.parametrize("which", ["q", "k", "v"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_visible_nan_is_never_hidden(geometry, which):
    where = GEOMETRIES[geometry](5)
    inputs = {name: x.detach() for name, x in zip("qkv", random_qkv(where, dtype=torch.float32), strict=True)}
    visible = where.visible.expand(2, *where.shape)
    for place in range(inputs[which].shape[2]):
        spoilt = {name: x.clone() for name, x in inputs.items()}
        spoilt[which][:, :, place, 0] = NAN
        out = attend(**spoilt, at=Alibi(heads=4).at(where))
        sees = visible.any(-1) & (torch.arange(where.shape[0]) == place) if which == "q" else visible[:, :, place]
        assert torch.equal(out.isnan().any(-1), sees[:, None].expand(2, 4, -1))


def test_explain_names_backend_reasons_bytes_and_operations():
    where = Geometry.causal(6)
    q, k, v = random_qkv(where, dtype=torch.float32)
    plain = explain(q, k, v, NoPosition().at(where))
    assert plain.backend == "sdpa"
    assert plain.unsupported["row_blocks"] == "the scheme adds nothing to the scores"
    assert plain.flops == 2 * 2 * 4 * 6 * 6 * (8 + 8)
    spoilt = q.detach().clone()
    spoilt[0, 0, 0, 0] = NAN
    told = explain(spoilt, k, v, NoPosition().at(where))
    assert told.backend == "reference"
    assert told.unsupported["sdpa"] == "q, k or v contains NaN or infinity"
    # scores and weights of all pairs at least
    assert told.workspace_bytes > 2 * 2 * 4 * 6 * 6 * 4
    assert explain(q, k, v, NoPosition().at(where), backend="reference").backend == "reference"


def test_backends_are_tried_in_order_with_the_reference_last():
    orders = [backend.priority for backend in BACKENDS.values()]
    assert orders == sorted(orders)
    # it supports every call
    assert list(BACKENDS)[-1] == "reference"


@pytest.mark.usefixtures("_small_blocks")
@each_backend
def test_a_scale_replaces_the_default(backend):
    where = Geometry.causal(5)
    q, k, v = random_qkv(where, dtype=torch.float64)
    scheme = Alibi(heads=4)
    doubled = attend_by(backend, 2 * q, k, v, scheme.at(where))
    scaled = attend_by(backend, q, k, v, scheme.at(where), scale=2 / math.sqrt(8))
    assert torch.allclose(doubled, scaled, atol=1e-12)


@pytest.mark.extended
@pytest.mark.usefixtures("_small_blocks")
@each_backend
def test_no_dropout_is_deterministic_and_dropout_keeps_the_mean(backend):
    where = Geometry.full(16)
    q, k, v = (x.detach() for x in random_qkv(where, heads=4, dtype=torch.float32))
    at = NoPosition().at(where)
    exact = attend_by(backend, q, k, v, at)
    assert torch.equal(exact, attend_by(backend, q, k, v, at, dropout=0.0))
    draws = torch.stack([attend_by(backend, q, k, v, at, dropout=0.3) for _ in range(600)])
    assert not torch.equal(draws[0], draws[1])
    error = (draws.mean(0) - exact).abs()
    # six standard errors: one in 10^8 for each of 2 000 numbers
    assert bool((error < 6 * draws.std(0) / math.sqrt(600)).all())


@pytest.mark.extended
def test_autocast_keeps_the_bias_of_alibi_in_float32():
    where = Geometry.causal(2048)
    scheme = Alibi(heads=4)
    q, k, v = (x.detach() for x in random_qkv(where, batch=1, dtype=torch.bfloat16))
    exact = attend(q.double(), k.double(), v.double(), scheme.at(where), backend="reference")
    spying = mock.patch.object(sdpa, "scaled_dot_product_attention", side_effect=sdpa.scaled_dot_product_attention)
    with torch.autocast("cpu", torch.bfloat16), spying as spy:
        out = attend(q.float(), k.float(), v.float(), scheme.at(where), backend="sdpa")
    assert out.dtype == torch.bfloat16
    assert_as_close(out, attend(q, k, v, scheme.at(where), backend="reference"), exact)
    assert torch.equal(out, attend(q, k, v, scheme.at(where), backend="sdpa"))
    mask = spy.call_args.kwargs["attn_mask"]
    assert mask.dtype == torch.float32
    # in bfloat16 about 770 of these numbers would be left
    assert all(head[-1].unique().numel() == 2048 for head in mask[0])


def test_under_autocast_what_is_explained_is_the_call_of_inputs_that_are_cast():
    where, scheme = Geometry.causal(512), TransformerXl(heads=4, head_width=8, width=64)
    inputs = [x.detach() for x in random_qkv(where, batch=1, dtype=torch.bfloat16)]
    plain = explain(*inputs, scheme.at(where), backend="relative_vectors")
    with torch.autocast("cpu", torch.bfloat16):
        cast = explain(*(x.float() for x in inputs), scheme.at(where), backend="relative_vectors")
    assert replace(cast, workspace_bytes=0) == replace(plain, workspace_bytes=0)
    # the copies in bfloat16 are held, too
    assert cast.workspace_bytes == plain.workspace_bytes + sum(x.numel() * 2 for x in inputs)


@settings(max_examples=30)
@given(st.integers(-50, 50), st.integers(1, 6))
def test_adding_to_all_scores_of_a_row_changes_nothing(shift, tokens):
    class Shifted(Alibi):
        def bias(self, where):
            return super().bias(where) + shift

    where = Geometry.causal(tokens)
    q, k, v = random_qkv(where, dtype=torch.float64)
    usual = attend(q, k, v, Alibi(heads=4).at(where))
    assert torch.allclose(usual, attend(q, k, v, Shifted(heads=4).at(where)), atol=1e-12)


@pytest.mark.usefixtures("_small_blocks")
@each_backend
def test_causality_means_exactly_zero_gradients(backend):
    where = Geometry.causal(6)
    q, k, v = random_qkv(where, dtype=torch.float64)
    out = attend_by(backend, q, k, v, Alibi(heads=4).at(where))
    for i in range(6):
        grads = torch.autograd.grad(out[:, :, i].sum(), [k, v], retain_graph=True)
        for grad in grads:
            assert torch.equal(grad[:, :, i + 1 :], torch.zeros_like(grad[:, :, i + 1 :]))
        assert bool((grads[1][:, :, : i + 1] != 0).all())


@pytest.mark.covering(1)
@pytest.mark.parametrize("window", [1, 2, 6, 7])
@pytest.mark.usefixtures("_small_blocks")
@each_backend
def test_a_window_of_w_reads_w_values(backend, window):
    where = Geometry.causal(7, window=window)
    q, k, v = random_qkv(where, dtype=torch.float64)
    out = attend_by(backend, q, k, v, NoPosition().at(where))
    for i in range(7):
        (grad,) = torch.autograd.grad(out[:, :, i].sum(), v, retain_graph=True)
        assert (grad[0, 0, :, 0] != 0).sum() == min(i + 1, window)


@pytest.mark.extended
def test_it_compiles_into_one_graph():
    program = """
import torch
from ordinate import Geometry, attend
from ordinate.schemes import T5, Alibi, NoPosition, Shaw, TransformerXl

for scheme in (NoPosition(), Alibi(heads=2), T5(heads=2)):
    for where in (Geometry.causal(7), Geometry.causal(3, cached=4), Geometry.causal(7, window=3)):
        torch._dynamo.reset()
        q = torch.randn(2, 2, where.shape[0], 8, requires_grad=True)
        k, v = torch.randn(2, 2, 1, where.shape[1], 8).unbind()
        run = lambda q: attend(q, k, v, scheme.at(where))
        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        for out, other in zip((run(q), *torch.autograd.grad(run(q).sum(), q)),
                              (compiled(q), *torch.autograd.grad(compiled(q).sum(), q))):
            assert torch.allclose(out, other, atol=1e-6), (scheme, where.shape)
"""
    # in a subprocess without the run-time type checks of the other tests, as users run it
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


X = torch.randn(2, 4, 5, 8)
AT = Alibi(heads=4).at(Geometry.causal(5))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("q", "k", "v", "extra", "match"),
    [
        (X[0], X, X, {}, r"q needs the axes \(batch, heads, tokens, head width\); got \(4, 5, 8\); reshape it"),
        (X, X[0], X, {}, r"k needs the axes \(batch, heads, tokens, head width\)"),
        (X.long(), X, X, {}, "q needs floating-point numbers; got torch.int64; convert it"),
        (X, X, X.long(), {}, "v needs floating-point numbers"),
        (X, X, X[:, :, :4], {}, r"each key needs one value; got k \(2, 4, 5, 8\), v \(2, 4, 4, 8\)"),
        (X, X[:, :, :4], X, {}, "each key needs one value"),
        (X, X[:1], X[:1], {}, "q and k need the same batch size; got 2 and 1"),
        (X, X[..., :4], X, {}, "q and k need the same head width; got 8 and 4"),
        (X, X[:, :3], X[:, :3], {}, "the number of heads of k must divide that of q; got 3 and 4"),
        (X, X[:, :0], X[:, :0], {}, "the number of heads of k must divide that of q; got 0 and 4"),
        (X[:, :, :3], X, X, {}, "the geometry must have as many queries and keys as q and k; got .5, 5. for q of 3"),
        (X, X.double(), X, {}, "q, k and v must have one dtype; got torch.float32, torch.float64, torch.float32"),
        (X, X, X.bfloat16(), {}, "q, k and v must have one dtype"),
        (X, X, X, {"scale": NAN}, "scale must be a finite number; got nan; leave it out"),
        (X, X, X, {"scale": INF}, "scale must be a finite number; got inf"),
        (X, X, X, {"dropout": 1.0}, r"dropout must lie in \[0, 1\); got 1.0"),
        (X, X, X, {"dropout": -0.1}, r"dropout must lie in \[0, 1\)"),
        (X, X, X, {"backend": "spda"}, "no backend is named 'spda'; .*did you mean 'sdpa'"),
        (
            X,
            X.to("meta"),
            X.to("meta"),
            {},
            "q, k, v and the geometry must be on one device; got cpu, meta, meta, cpu",
        ),
    ],
)
@pytest.mark.parametrize("function", [attend, explain])
def test_inputs_that_do_not_match_raise_an_error(function, q, k, v, extra, match, untyped):
    with pytest.raises(ValueError, match=match):
        function(q, k, v, AT, **extra)


@pytest.mark.parametrize("scale", [torch.tensor(1j), torch.tensor(1.0), "1", 2j])
def test_a_nonfinite_scale_raises_an_error(scale, untyped):
    with pytest.raises(TypeError, match="scale must be a number; got "):
        attend(X, X, X, AT, scale=scale)


def test_options_of_another_type_raise_an_error(untyped):
    with pytest.raises(TypeError, match="score_options must be ScoreOptions or None; got dict; give ScoreOptions"):
        attend(X, X, X, AT, score_options={"softcap": 20.0})
    with pytest.raises(TypeError, match="normaliser must be a function of scores and mask; got str; leave it out"):
        ScoreOptions(normaliser="softmax")


def test_a_geometry_of_another_batch_size_raises_an_error(untyped):
    where = Geometry.padded(torch.ones(3, 5).bool())
    for batch in (1, 2):
        x = torch.randn(batch, 4, 5, 8)
        with pytest.raises(
            ValueError, match=f"the geometry must have the batch size of q, or 1;.*got 3 for a batch of {batch}"
        ):
            attend(x, x, x, NoPosition().at(where))


@pytest.mark.parametrize("tokens", [0, 3, 700])
@pytest.mark.parametrize("width", [1, 5])
def test_vectors_of_another_width_than_the_values_are_an_error(width, tokens):
    q, values = torch.randn(2, 2, tokens, 8), torch.randn(2, 2, tokens, width)
    # of width 1 the outputs would be broadcast
    says = rf"^value_bias of Shaw must .* got \(2, 2, [01], 8\) .* \(2, 2, [01], {width}\)"
    with pytest.raises(ValueError, match=says):
        attend(q, q, values, Shaw(head_width=8).at(Geometry.causal(tokens)))
    assert attend(q, q, values, Shaw(head_width=8, values=False).at(Geometry.causal(tokens))).shape == values.shape
