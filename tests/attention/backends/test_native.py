import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ordinate import Geometry, attend, explain
from ordinate.attention import ScoreOptions
from ordinate.attention.backends import native
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.ops import decay_cutoff
from ordinate.ops.native import attention, build, job
from ordinate.ops.offset_bias_attention import masked_table
from ordinate.schemes import T5, Alibi, Kerple, NoPosition
from ordinate.testing.backend import GEOMETRIES, assert_agrees, random_qkv

TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _built(attention_kernel, monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(native, "MIN_PAIRS", 0)
    monkeypatch.setattr(native, "MIN_HEAD_PAIRS", 0)


def t5() -> T5:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5, "kerple": lambda: Kerple(heads=4)}


@pytest.mark.covering(2)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    where = GEOMETRIES[geometry](17)
    assert_agrees("native", SCHEMES[name](), where, *random_qkv(where, dtype=type))


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("tokens", "width"), [(5, 1), (63, 33), (64, 24), (129, 8), (300, 7)])
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width, type):
    for geometry, name in (("causal", "none"), ("window", "alibi"), ("left", "t5"), ("cross", "t5")):
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("native", SCHEMES[name](), where, *random_qkv(where, width=width, heads=4, dtype=type))


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("type", TYPES[:2])
def test_it_agrees_over_several_tiles(type):
    # more queries and keys than a tile has rows or columns, starting inside a tile
    for where in (
        Geometry.causal(650, cached=37),
        Geometry.causal(700, window=150),
        Geometry.packed([530, 3, 130]),
        Geometry.full(577),
    ):
        assert_agrees("native", t5(), where, *random_qkv(where, batch=1, dtype=type))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_and_their_gradients(kv_heads):
    where = Geometry.causal(9)
    assert_agrees("native", t5(), where, *random_qkv(where, kv_heads=kv_heads, dtype=torch.float32))


@pytest.fixture
def no_bfloat16_products(monkeypatch):
    """A processor that cannot multiply bfloat16, such as one without AVX-512."""
    monkeypatch.setattr(attention, "multiplies", lambda type: type == torch.float32)


@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_bfloat16_by_float32_products_agrees_with_the_reference(name, geometry, no_bfloat16_products):
    for tokens, width, kv_heads in ((17, 8, 2), (65, 33, 4)):
        where = GEOMETRIES[geometry](tokens)
        qkv = random_qkv(where, width=width, heads=4, kv_heads=kv_heads, dtype=torch.bfloat16)
        assert_agrees("native", SCHEMES[name](), where, *qkv)


@pytest.mark.extended
@pytest.mark.covering(0)
def test_bfloat16_by_float32_products_agrees_over_several_tiles(no_bfloat16_products):
    for where in (Geometry.causal(650, cached=37), Geometry.packed([530, 3, 130]), Geometry.full(577)):
        qkv = random_qkv(where, batch=1, dtype=torch.bfloat16)
        assert_agrees("native", t5(), where, *qkv)
        options = ScoreOptions(softcap=2.0, sinks=torch.zeros(4))
        assert_agrees("native", t5(), where, *qkv, options)


def test_bfloat16_by_float32_products_rounds_results_only(no_bfloat16_products):
    where, table = Geometry.causal(300), t5()
    qkv = random_qkv(where, heads=4, width=24, dtype=torch.bfloat16)
    exact = [x.detach().float().requires_grad_() for x in qkv]
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: held.append(x) or x, lambda x: x):
        out = attend(*qkv, table.at(where), backend="native")
    expected = attend(*exact, table.at(where), backend="native")
    assert out.equal(expected.bfloat16())
    # no tensor is held in float32 too
    assert all(x.element_size() <= 2 for x in held if x.numel() >= out.numel())
    upstream = torch.randn(out.shape).bfloat16()
    found = torch.autograd.grad(out, qkv, upstream)
    rounded = torch.autograd.grad(expected, exact, upstream.float())
    for one, other in zip(found, rounded, strict=True):
        # delta comes from an output that is rounded to bfloat16 and eight more bits
        torch.testing.assert_close(one.float(), other, atol=1e-4, rtol=2**-8)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("width", [3, 40])
def test_values_may_have_another_width(width, type):
    where = Geometry.causal(9)
    q, k, _ = random_qkv(where, dtype=type)
    v = torch.randn(2, 2, 9, width).to(type).requires_grad_()
    assert_agrees("native", t5(), where, q, k, v)


def test_queries_without_visible_keys_give_zero_and_no_gradient():
    # twenty queries, five keys, and a window without keys for the last queries
    where = Geometry.full(5, window=3)
    where = Geometry(torch.arange(20)[None, :, None], where.k_pos, window=3, consecutive=True)
    q, k, v = random_qkv(where, dtype=torch.float32)
    out = attend(q, k, v, t5().at(where), backend="native")
    assert (out[:, :, 8:] == 0).all()
    (slope,) = torch.autograd.grad(out.square().sum(), q)
    assert (slope[:, :, 8:] == 0).all()
    assert (slope[:, :, :6] != 0).any(-1).all()
    assert_agrees("native", t5(), where, q, k, v)


@pytest.mark.parametrize("type", TYPES[:2])
def test_strided_inputs_give_the_same_result(type):
    where = Geometry.causal(9)
    transposed = torch.randn(2, 9, 4, 8).to(type).transpose(1, 2)
    fused = torch.randn(2, 9, 4, 24).to(type).transpose(1, 2)[..., 8:16]
    expanded = torch.randn(1, 1, 9, 8).to(type).expand(2, 4, 9, 8)
    alone = torch.randn(2, 4, 1, 8).to(type).expand(2, 4, 9, 8)
    second = torch.randn(2, 4, 18, 16).to(type)[:, :, ::2, ::2]
    for x in (transposed, fused, expanded, alone, second):
        at, upstream = t5().at(where), torch.randn(2, 9, 4, 8).to(type).transpose(1, 2)
        results = []
        for y in (x, x.contiguous()):
            inputs = [y.detach().requires_grad_() for _ in range(3)]
            out = attend(*inputs, at, backend="native")
            results.append((out, *torch.autograd.grad(out, inputs, upstream)))
        assert all(a.equal(b) for a, b in zip(*results, strict=True))


def test_threads_and_other_rows_of_the_batch_change_no_bit():
    where = Geometry.causal(400)
    q, k, v = random_qkv(where, batch=3, dtype=torch.float32)
    scheme = t5()

    def results(*inputs):
        out = attend(*inputs, scheme.at(where), backend="native")
        return out, *torch.autograd.grad(out.square().sum(), [*inputs, scheme.table])

    alone = results(q, k, v)
    try:
        torch.set_num_threads(2)
        together = results(q, k, v)
        few = results(*(x[:1, :2] if x.shape[1] == 2 else x[:1] for x in (q, k, v)))
    finally:
        torch.set_num_threads(1)
    assert all(a.equal(b) for a, b in zip(alone, together, strict=True))
    assert all(a[:1].equal(b) for a, b in zip(alone[:4], few[:4], strict=True))


FAR = [
    Geometry.causal(1000),
    Geometry.causal(1000, cached=45),
    Geometry.full(1000),
    Geometry.full(1000, window=600),
    Geometry.packed([490, 510], causal=False),
    Geometry.padded(torch.arange(1000)[None] < 970, causal=False),
]


@pytest.mark.extended
@pytest.mark.covering(2)
@pytest.mark.parametrize("where", FAR, ids=str)
def test_keys_of_negligible_weight_are_skipped(where, monkeypatch):
    scheme = Alibi(heads=4)
    q, k, v = random_qkv(where, batch=1, dtype=torch.float32)
    table = masked_table(scheme.at(where).offset_table, where, 4, torch.float32)
    first, stop = decay_cutoff.relevant_keys(q, k, table, where, 8**-0.5, 128)
    assert first.shape == stop.shape == (1, 4, 8)
    assert first[0, 0, -1] > 700
    assert (first[0, :, 0] <= where.start).all()
    if not where.is_causal:
        assert stop[0, 0, 0] < 300
    assert_agrees("native", scheme, where, q, k, v)
    # a bound that is too tight is detected
    monkeypatch.setattr(decay_cutoff, "SKIPPED_SHARE", 1e16)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees("native", scheme, where, q, k, v)


def test_no_key_is_skipped_where_none_is_negligible_or_queries_have_no_key_of_their_own():
    where = Geometry.causal(1000)
    q, k, _ = random_qkv(where, batch=1, dtype=torch.float32)
    assert decay_cutoff.relevant_keys(q, k, t5().at(where).offset_table, where, 1.0, 128) is None
    where = Geometry.cross(900, 800)
    q, k, _ = random_qkv(where, batch=1, dtype=torch.float32)
    assert decay_cutoff.relevant_keys(q, k, Alibi(heads=4).at(where).offset_table, where, 1.0, 128) is None


def test_a_shifted_diagonal_of_the_gradient_is_detected(monkeypatch):
    # the gradient of the table is the part most prone to off-by-one errors
    whole = attention.backward

    def shifted(*arguments):
        made = whole(*arguments)
        return made if made.table is None else made._replace(table=made.table.roll(1, 1))

    where = Geometry.causal(17)
    monkeypatch.setattr(attention, "backward", shifted)
    with pytest.raises(AssertionError, match="gradient of the scheme"):
        assert_agrees("native", t5(), where, *random_qkv(where, dtype=torch.float32))


def test_a_decoder_trains_to_the_same_gradients(monkeypatch):
    def slopes(switch):
        monkeypatch.setenv(build.ENV_VARIABLE, switch)
        torch.manual_seed(0)
        model = Decoder(Shape(vocabulary=16, width=32, heads=4, layers=2, scheme="t5"))
        ids = torch.randint(16, (2, 40))
        model(ids).logsumexp(-1).sum().backward()
        return torch.cat([x.grad.flatten() for x in model.parameters()])

    assert torch.allclose(slopes("on"), slopes("off"), atol=1e-5)


@pytest.mark.extended
@pytest.mark.parametrize(("tokens", "width"), [(97, 16), (256, 64), (300, 32), (513, 128), (1000, 64)])
@pytest.mark.parametrize("name", ["t5", "alibi"])
def test_errors_are_no_larger_than_those_of_sdpa(name, tokens, width):
    where, scheme = Geometry.causal(tokens), SCHEMES[name]()
    mask = scheme.bias(where).detach().masked_fill(~where.visible[:, None], float("-inf"))
    ours, theirs = torch.zeros(4), torch.zeros(4)
    for _ in range(3):
        q, k, v = random_qkv(where, kv_heads=4, width=width, dtype=torch.float32)
        upstream, wide = torch.randn_like(q), [x.detach().double().requires_grad_() for x in (q, k, v)]
        exact = scaled_dot_product_attention(*wide, attn_mask=mask.double())
        true = exact, *torch.autograd.grad(exact, wide, upstream.double())
        for errors, out in (
            (ours, attend(q, k, v, scheme.at(where), backend="native")),
            (theirs, scaled_dot_product_attention(q, k, v, attn_mask=mask)),
        ):
            found = out, *torch.autograd.grad(out, [q, k, v], upstream)
            errors += torch.stack([(a - b).norm() / b.norm() for a, b in zip(found, true, strict=True)]).detach()
    assert (ours <= 1.1 * theirs).all(), ours / theirs


@pytest.mark.parametrize(
    ("scheme", "where", "type", "dropout", "says"),
    [
        (
            Alibi(heads=4),
            Geometry.from_positions(torch.tensor([[[0], [5], [2]]])),
            torch.float32,
            0.0,
            "the bias depends on more than the offset in memory order",
        ),
        (Alibi(heads=4), Geometry.causal(3), torch.float32, 0.5, "dropout is not supported"),
        (Alibi(heads=4), Geometry.causal(3), torch.float64, 0.0, "float64 is not supported"),
        (Alibi(heads=4), Geometry.causal(0), torch.float32, 0.0, "a tensor is empty"),
    ],
)
def test_unsupported_calls_are_rejected_with_a_reason(scheme, where, type, dropout, says):
    q, k, v = random_qkv(where, batch=1, dtype=type)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme.at(where), dropout=dropout, backend="native")


def test_small_inputs_and_nonfinite_numbers_are_rejected(monkeypatch):
    where = Geometry.causal(3)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    k[0, 0, 0, 0] = float("nan")
    assert explain(q, k, v, t5().at(where)).unsupported["native"] == "q, k or v contains NaN or infinity"
    monkeypatch.setattr(native, "MIN_HEAD_PAIRS", 10)
    few = "other ways are faster with fewer than 10 query-key pairs in a head"
    assert explain(q, k, v, t5().at(where)).unsupported["native"] == few
    # a backend that is named is taken
    assert explain(q, q, v[:, :2].repeat(1, 2, 1, 1), t5().at(where), backend="native").backend == "native"
    monkeypatch.setattr(native, "MIN_HEAD_PAIRS", 0)
    monkeypatch.setattr(native, "MIN_PAIRS", 73)
    assert explain(q, k, v, t5().at(where)).unsupported["native"] == "there are fewer than 73 query-key pairs"
    assert (
        explain(q, k, v, NoPosition().at(where)).unsupported["native"] == "there are fewer than 292 query-key pairs"
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_bias_that_is_not_finite_shows(number):
    scheme, where = t5(), Geometry.causal(300)
    q, k, v = (x.detach() for x in random_qkv(where, heads=4, kv_heads=4, dtype=torch.float32))
    with torch.no_grad():
        scheme.table[3, 1] = number
    found = explain(q, k, v, scheme.at(where))
    assert found.unsupported["native"] == "the bias contains NaN or infinity, or scores may overflow"
    seen = attend(q, k, v, scheme.at(where)).isfinite().all(-1)
    assert seen[:, [0, 2, 3]].all()
    assert seen[:, 1, :3].all()
    assert not seen[:, 1, 3:].any()


def test_a_bias_of_minus_infinity_hides_keys():
    scheme, where = t5(), Geometry.causal(300)
    q, k, v = (x.detach() for x in random_qkv(where, heads=4, kv_heads=4, dtype=torch.float32))
    with torch.no_grad():
        scheme.table[3, 1] = -float("inf")
    exact = attend(q.double(), k.double(), v.double(), scheme.at(where), backend="reference")
    torch.testing.assert_close(
        attend(q, k, v, scheme.at(where), backend="native").double(), exact, atol=1e-5, rtol=1e-5
    )


def test_no_bias_tensor_of_queries_times_keys_is_held():
    where = Geometry.causal(2000)
    q, k, v = (torch.zeros(1, 4, 2000, 8) for _ in range(3))
    told = explain(q, k, v, t5().at(where))
    assert told.backend == "native"
    assert told.workspace_bytes < 2000 * 2000


def test_a_failure_in_cpp_raises_an_error(monkeypatch):
    monkeypatch.setattr(job, "load_kernel", lambda name: lambda given: b"no memory")
    where = Geometry.causal(3)
    with pytest.raises(RuntimeError, match="attention: no memory"):
        attend(*random_qkv(where, dtype=torch.float32), t5().at(where), backend="native")


SINKS = torch.tensor([0.5, -1.0, 2.0, 30.0])
FORMULAS = {
    "cap": ScoreOptions(softcap=0.7),
    "sinks": ScoreOptions(sinks=SINKS),
    "both": ScoreOptions(softcap=20.0, sinks=SINKS),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("formula", FORMULAS)
def test_caps_and_sinks_agree_forward_and_backward(formula, geometry, type):
    where = GEOMETRIES[geometry](17)
    for name in ("none", "t5"):
        assert_agrees("native", SCHEMES[name](), where, *random_qkv(where, dtype=type), FORMULAS[formula])


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("type", TYPES[:2])
@pytest.mark.parametrize("formula", FORMULAS)
def test_caps_and_sinks_agree_over_several_tiles(formula, type):
    for where in (Geometry.causal(650, cached=37), Geometry.packed([530, 3, 130])):
        assert_agrees("native", t5(), where, *random_qkv(where, batch=1, dtype=type), FORMULAS[formula])


@pytest.mark.parametrize("name", ["cap", "sinks"])
def test_a_backward_pass_without_a_part_of_the_formula_is_detected(name, monkeypatch):
    backward, where = attention.backward, Geometry.causal(17)

    def incomplete(gradient, saved, where, scoring, span, learned):
        if name == "cap":
            return backward(gradient, saved, where, scoring._replace(softcap=None), span, learned)
        made = backward(gradient, saved, where, scoring, span, learned)
        return made._replace(sinks=0 * made.sinks)

    monkeypatch.setattr(attention, "backward", incomplete)
    with pytest.raises(AssertionError, match="gradient"):
        assert_agrees("native", NoPosition(), where, *random_qkv(where, dtype=torch.float32), FORMULAS[name])


def test_soft_caps_are_exact_for_very_large_and_very_small_products():
    where = Geometry.full(64)
    for size in (1e-4, 1e-1, 1.0, 100.0):
        q, k, v = random_qkv(where, dtype=torch.float32)
        q = (q.detach() * size).requires_grad_()
        assert_agrees("native", NoPosition(), where, q, k, v, ScoreOptions(softcap=3.0))


def test_a_nonfinite_sink_is_left_to_the_reference():
    q, k, v = random_qkv(Geometry.causal(17), dtype=torch.float32)
    formula = ScoreOptions(sinks=torch.tensor([0.0, -float("inf"), 1.0, 0.0]))
    at = NoPosition().at(Geometry.causal(17))
    assert explain(q, k, v, at, score_options=formula).unsupported["native"] == "a sink is not finite"
    assert torch.allclose(attend(q, k, v, at, score_options=formula)[:, 1], attend(q, k, v, at)[:, 1])
