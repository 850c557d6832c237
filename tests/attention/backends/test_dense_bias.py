import pytest
import torch
from torch import nn

from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions, _dense_blocks, _dense_terms
from ordinate.attention.backends import dense_bias as backend
from ordinate.ops.native import attention, build
from ordinate.schemes import (
    T5,
    Alibi,
    Cope,
    Deberta,
    Fire,
    HeadGroups,
    Kerple,
    NoPosition,
    Rope,
    Shaw,
    Sum,
    TransformerXl,
)
from ordinate.schemes.music import Music
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.testing.backend import GEOMETRIES, assert_agrees, assert_second_gradients_agree, random_qkv
from ordinate.testing.tolerance import assert_as_close

SIZES = {"heads": 4, "head_width": 8}
DEBERTA = {"width": 12, "buckets": 4, "max_distance": 8}
SCHEMES = {
    "t5": lambda: T5(heads=4),
    "fire": lambda: Fire(heads=4),
    "cope": lambda: Cope(head_width=8, max_positions=4),
    "kerple, weighted": lambda: Kerple(heads=4, weighted=True),
    "rope with rates of each query": lambda: Rope(head_width=8, spectrum=Dynamic(factor=2, trained_length=6)),
    "shaw": lambda: Shaw(head_width=8, past=3, future=2),
    "shaw of each head": lambda: Shaw(**SIZES, per_head=True, past=2, future=4),
    "shaw, keys only": lambda: Shaw(head_width=8, past=0, future=4, values=False),
    "music": lambda: Music(**SIZES, max_length=9, out_of_range="zero", future=True),
    "transformer_xl": lambda: TransformerXl(**SIZES, width=12),
    "deberta": lambda: Deberta(**SIZES, **DEBERTA),
    "deberta, keys": lambda: Deberta(**SIZES, **DEBERTA, terms="p2c"),
    "sum": lambda: Sum(T5(heads=4), Deberta(**SIZES, **DEBERTA), Shaw(head_width=8, past=3)),
    "sum without vectors": lambda: Sum(Fire(heads=4), Shaw(head_width=8, past=3)),
    "heads": lambda: HeadGroups(Shaw(head_width=8, past=3), Alibi(heads=1), NoPosition(), Fire(heads=1), heads=4),
}


@pytest.fixture(autouse=True)
def _built(attention_kernel, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(backend, "MIN_PAIRS", 0)
    monkeypatch.setattr(backend, "MIN_HEAD_PAIRS", 0)


@pytest.fixture(params=["whole", "in blocks"])
def way(request, monkeypatch):
    """All pairs at once, or blocks of up to 24 queries, the last of them smaller."""
    if request.param == "in blocks":
        monkeypatch.setattr(backend, "MAX_KEYS", 0)
        monkeypatch.setattr(_dense_blocks, "MAX_ROWS", 24)
    return request.param


def made(name):
    torch.manual_seed(0)
    scheme = SCHEMES[name]()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter, std=0.5)
    return scheme


def results(scheme, where, inputs, name, options=None):
    out = attend(*inputs, scheme.at(where), backend=name, score_options=options)
    upstream = torch.linspace(-1, 1, out.numel()).reshape(out.shape).cos().to(out.dtype)
    learned = {name: x for name, x in scheme.named_parameters() if x.requires_grad}
    slopes = torch.autograd.grad(out, [*inputs, *learned.values()], upstream, allow_unused=True)
    found = {"output": out.detach(), **dict(zip(["q", "k", "v", *learned], slopes, strict=True))}
    return {name: x for name, x in found.items() if x is not None}


def assert_same(scheme, where, inputs, options=None):
    """Agreement with the reference, each number to within rounding of the largest."""
    found, plain = (results(scheme, where, inputs, name, options) for name in ("dense_bias", "reference"))
    wide = [x.detach().double().requires_grad_() for x in inputs]
    sinks = None if options is None else ScoreOptions(sinks=options.sinks.double())
    exact = results(scheme.double(), where, wide, "reference", sinks)
    assert found.keys() == plain.keys()
    for what, true in exact.items():
        # some gradients are 0 but for rounding, as that of FIRE's last bias
        usual, largest = (plain[what] - true).abs().max(), max(x.abs().max() for x in exact.values())
        assert (found[what] - true).abs().max() <= 4 * usual + 2e-6 * largest, what


@pytest.mark.covering(2)
@pytest.mark.parametrize("tokens", [17, 130])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, tokens, way):
    where = GEOMETRIES[geometry](tokens)
    assert_same(made(name), where, random_qkv(where, dtype=torch.float32))


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("geometry", ["causal", "left", "packed", "two sides"])
@pytest.mark.parametrize("name", ["t5", "shaw", "music", "deberta", "cope"])
def test_errors_in_16_bits_are_those_of_the_reference(name, geometry, type, way):
    where = GEOMETRIES[geometry](40)
    assert_agrees("dense_bias", made(name), where, *random_qkv(where, dtype=type))


@pytest.mark.parametrize("name", ["fire", "shaw", "deberta", "heads"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_groups_of_heads_share_keys_and_their_gradients(kv_heads, name, way):
    where = Geometry.causal(9)
    assert_same(made(name), where, random_qkv(where, kv_heads=kv_heads, dtype=torch.float32))


@pytest.mark.parametrize("name", ["fire", "shaw", "transformer_xl"])
@pytest.mark.parametrize("geometry", ["causal", "window", "left", "two sides"])
def test_sinks_take_part_in_the_softmax(name, geometry, way):
    where, scheme = GEOMETRIES[geometry](140), made(name)
    inputs = random_qkv(where, heads=4, kv_heads=4, dtype=torch.float32)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], requires_grad=True)
    assert_agrees("dense_bias", scheme, where, *inputs, ScoreOptions(sinks=sinks))
    assert_same(scheme.float(), where, inputs, ScoreOptions(sinks=sinks.detach()))


@pytest.mark.parametrize(("queries", "cached"), [(1, 11), (5, 300), (1, 0), (2, 0), (200, 312)])
@pytest.mark.parametrize("name", ["shaw", "music", "deberta", "cope"])
def test_a_cache_of_any_length_agrees(name, queries, cached, way):
    where = Geometry.causal(queries, cached=cached)
    assert_same(made(name), where, random_qkv(where, batch=1, dtype=torch.float32))


@pytest.mark.parametrize("geometry", ["causal", "window", "packed", "left", "cross", "cached"])
@pytest.mark.parametrize("name", ["t5", "fire", "shaw", "deberta"])
@pytest.mark.covering(1)
def test_second_gradients_agree_with_the_reference(name, geometry, way):
    sinks = torch.randn(4).requires_grad_()
    for options in ({}, {"score_options": ScoreOptions(sinks=sinks)}):
        assert_second_gradients_agree("dense_bias", made(name), GEOMETRIES[geometry](21), torch.float32, **options)


@pytest.mark.parametrize("name", ["shaw", "t5"])
def test_gradients_of_many_outputs_at_once_are_those_of_each(name, way):
    where, scheme = Geometry.causal(11), made(name)
    q, k, v = random_qkv(where, dtype=torch.float32)
    out = attend(q, k, v, scheme.at(where), backend="dense_bias")
    many, leaves = torch.randn(3, *out.shape), [q, k, v, *scheme.parameters()]
    together = torch.autograd.grad(out, leaves, many, is_grads_batched=True, retain_graph=True)
    each = zip(*(torch.autograd.grad(out, leaves, one, retain_graph=True) for one in many), strict=True)
    for one, other in zip(together, each, strict=True):
        torch.testing.assert_close(one, torch.stack(other))


class Given(NoPosition):
    """A bias of each pair that is given."""

    shift_invariant = False

    def __init__(self, bias):
        super().__init__()
        self.given = bias

    @property
    def hooks(self):
        return ("bias",)

    def bias(self, where):
        queries, keys = where.q_pos[0, :, 0], where.k_pos[0, :, 0]
        return self.given[:, :, queries][..., keys]


def given(number):
    q, k, v = random_qkv(Geometry.causal(9), dtype=torch.float32)
    bias = torch.zeros(1, 1, 9, 9)
    bias[0, 0, 4, 2] = number
    bias[0, 0, 6] = number if number == float("-inf") else 0.0
    at = Given(bias).at(Geometry.causal(9))
    return [attend(q, k, v, at, backend=name) for name in ("dense_bias", "reference")]


def test_a_bias_of_minus_infinity_hides_a_key_and_of_all_keys_gives_zero(way):
    made, exact = given(float("-inf"))
    torch.testing.assert_close(made, exact)
    assert (made[:, :, 6] == 0).all()
    assert not made.isnan().any()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 3e38])
def test_other_numbers_that_are_not_finite_reach_the_rows_that_see_them(number, way):
    made, exact = given(number)
    torch.testing.assert_close(made, exact, equal_nan=True)
    assert made[:, :, 4].isnan().all() == exact[:, :, 4].isnan().all()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_bias_by_offset_that_is_not_finite_reaches_the_rows_that_see_it(number, way):
    buckets, where = T5(heads=4), Geometry.causal(9)
    scheme = Sum(buckets, Shaw(head_width=8, past=3))
    q, k, v = random_qkv(where, dtype=torch.float32)
    with torch.no_grad():
        buckets.table[3, 1] = number
    made, exact = (attend(q, k, v, scheme.at(where), backend=name) for name in ("dense_bias", "reference"))
    assert made[:, 1, 3:].isnan().all()
    torch.testing.assert_close(made, exact, equal_nan=True)


def shifted(x, vectors, columns, first, real=_dense_terms.pair_products):
    return real(x, vectors._replace(vectors=vectors.vectors.roll(1, 1)), columns, first)


def clipped_early(vectors, reach, where, real=_dense_terms._clipped):
    return real(vectors, reach - 1, where)


def without_those_of_weights(upstream, *rest, real=attention.backward):
    return real((upstream[0], None), *rest)


def without_bias(*given, real=attention.backward):
    found = real(*given)
    return found if found.bias is None else found._replace(bias=torch.zeros_like(found.bias))


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        (_dense_terms, "pair_products", shifted),
        (_dense_terms, "_clipped", clipped_early),
        (attention, "backward", without_those_of_weights),
        (attention, "backward", without_bias),
    ],
)
def test_a_wrong_offset_or_a_dropped_gradient_is_caught(module, name, wrong, monkeypatch, way):
    where = Geometry.causal(29)
    inputs = random_qkv(where, dtype=torch.float32)
    assert_same(made("shaw"), where, inputs)
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        assert_same(made("shaw"), where, inputs)


def test_results_do_not_depend_on_the_number_of_threads(way):
    where, scheme = Geometry.causal(150), made("shaw")
    inputs = random_qkv(where, dtype=torch.float32)
    one = results(scheme, where, inputs, "dense_bias")
    torch.set_num_threads(2)
    try:
        two = results(scheme, where, inputs, "dense_bias")
    finally:
        torch.set_num_threads(1)
    for name in ("output", "q", "k", "v"):
        torch.testing.assert_close(one[name], two[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["fire", "transformer_xl", "deberta", "cope"])
def test_errors_are_no_larger_than_those_of_the_plain_formula(name, way):
    where, scheme = Geometry.causal(400), made(name)
    inputs = random_qkv(where, width=8, dtype=torch.float32)
    found, plain = (results(scheme, where, inputs, which) for which in ("dense_bias", "reference"))
    exact = results(scheme.double(), where, [x.detach().double().requires_grad_() for x in inputs], "reference")
    for what in ("output", "q", "k", "v"):
        assert_as_close(found[what], plain[what], exact[what], factor=2.0, what=what)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dropout": 0.1}, "dropout is not supported"),
        ({"score_options": ScoreOptions(softcap=3.0)}, "softcap of the formula is not supported"),
    ],
)
def test_it_refuses_what_it_does_not_compute(change, reason):
    q, k, v = random_qkv(Geometry.causal(9), dtype=torch.float32)
    with pytest.raises(ValueError, match=reason):
        attend(q, k, v, made("shaw").at(Geometry.causal(9)), backend="dense_bias", **change)


def test_it_refuses_float64_no_bias_and_other_sizes(monkeypatch):
    q, k, v = random_qkv(Geometry.causal(9), dtype=torch.float32)
    at = made("shaw").at(Geometry.causal(9))
    with pytest.raises(ValueError, match="float64"):
        attend(q.double(), k.double(), v.double(), at, backend="dense_bias")
    with pytest.raises(ValueError, match="adds nothing to the scores"):
        attend(q, k, v, NoPosition().at(Geometry.causal(9)), backend="dense_bias")
    assert explain(q, k, v, at).backend == "dense_bias"
    monkeypatch.setattr(backend, "MIN_PAIRS", 2**16)
    with pytest.raises(ValueError, match="fewer than 65536"):
        attend(q, k, v, at, backend="dense_bias")


@pytest.mark.parametrize(
    ("name", "tokens", "chosen"), [("cope", 31, "sdpa"), ("cope", 32, "dense_bias"), ("shaw", 9, "dense_bias")]
)
def test_very_short_texts_are_left_to_pytorch_but_those_with_relative_vectors(name, tokens, chosen):
    where = Geometry.causal(tokens)
    assert explain(*random_qkv(where, dtype=torch.float32), made(name).at(where)).backend == chosen
