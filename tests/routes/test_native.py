import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ordinate import T5, Alibi, Formula, Geometry, Kerple, Unmarked, attend, explain
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.native import attention, build, job
from ordinate.ops import reach
from ordinate.ops.tiles import masked_table
from ordinate.routes import native
from ordinate.testing.route import GEOMETRIES, assert_agrees, draw

TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.SWITCH)
        reason = build.reason("attention")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _built(_compiler, monkeypatch):
    monkeypatch.delenv(build.SWITCH)
    monkeypatch.setattr(native, "PAIRS", 0)


def t5() -> T5:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": Unmarked, "alibi": lambda: Alibi(heads=4), "t5": t5, "kerple": lambda: Kerple(heads=4)}


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    where = GEOMETRIES[geometry](17)
    assert_agrees("native", SCHEMES[name](), where, *draw(where, type=type))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("tokens", "width"), [(5, 1), (63, 33), (64, 24), (129, 8), (300, 7)])
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width, type):
    for geometry, name in (("causal", "none"), ("window", "alibi"), ("left", "t5"), ("cross", "t5")):
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("native", SCHEMES[name](), where, *draw(where, width=width, heads=4, type=type))


@pytest.mark.parametrize("type", TYPES[:2])
def test_it_agrees_over_several_tiles(type):
    # more queries and keys than a tile has rows or columns, begun in the middle of one
    for where in (
        Geometry.causal(650, cached=37),
        Geometry.causal(700, window=150),
        Geometry.packed([530, 3, 130]),
        Geometry.full(577),
    ):
        assert_agrees("native", t5(), where, *draw(where, batch=1, type=type))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_and_their_gradients(kv_heads):
    where = Geometry.causal(9)
    assert_agrees("native", t5(), where, *draw(where, kv_heads=kv_heads, type=torch.float32))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("width", [3, 40])
def test_values_may_have_a_width_of_their_own(width, type):
    where = Geometry.causal(9)
    q, k, _ = draw(where, type=type)
    v = torch.randn(2, 2, 9, width).to(type).requires_grad_()
    assert_agrees("native", t5(), where, q, k, v)


def test_queries_that_see_nothing_give_zero_and_pass_no_gradient():
    # twenty queries, five keys, and a window that leaves the far queries none
    where = Geometry.full(5, window=3)
    where = Geometry(torch.arange(20)[None, :, None], where.k_pos, window=3, ordered=True)
    q, k, v = draw(where, type=torch.float32)
    out = attend(q, k, v, t5().at(where), route="native")
    assert (out[:, :, 8:] == 0).all()
    (slope,) = torch.autograd.grad(out.square().sum(), q)
    assert (slope[:, :, 8:] == 0).all()
    assert (slope[:, :, :6] != 0).any(-1).all()
    assert_agrees("native", t5(), where, q, k, v)


@pytest.mark.parametrize("type", TYPES[:2])
def test_strided_inputs_are_read_as_they_are(type):
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
            out = attend(*inputs, at, route="native")
            results.append((out, *torch.autograd.grad(out, inputs, upstream)))
        assert all(a.equal(b) for a, b in zip(*results, strict=True))


def test_two_threads_and_other_rows_of_the_batch_change_no_bit():
    where = Geometry.causal(400)
    q, k, v = draw(where, batch=3, type=torch.float32)
    scheme = t5()

    def results(*inputs):
        out = attend(*inputs, scheme.at(where), route="native")
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


@pytest.mark.parametrize("cached", [0, 45])
def test_keys_that_weigh_nothing_are_left_out(cached, monkeypatch):
    where = Geometry.causal(1000, cached=cached)
    scheme = Alibi(heads=4)
    q, k, v = draw(where, batch=1, type=torch.float32)
    table = masked_table(scheme.at(where).table, where, 4, torch.float32)
    first = reach.first_keys(q, k, table, where, 8**-0.5, 128)
    assert first.shape == (1, 4, 8)
    assert first[0, 0, -1] > 700
    assert (first[0, :, 0] <= cached).all()
    assert_agrees("native", scheme, where, q, k, v)
    # a bound that is too tight is noticed
    monkeypatch.setattr(reach, "SHARE", 1e16)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees("native", scheme, where, q, k, v)


def test_nothing_is_left_out_where_the_bound_does_not_hold():
    q, k, _ = draw(Geometry.causal(600), batch=1, type=torch.float32)
    for where in (Geometry.full(600), Geometry.packed([300, 300])):
        table = Alibi(heads=4).at(where).table
        assert reach.first_keys(q, k, table, where, 1.0, 128) is None
    where = Geometry.causal(600)
    assert reach.first_keys(q, k, t5().at(where).table, where, 1.0, 128) is None


def test_a_lost_diagonal_is_noticed(monkeypatch):
    # the gradient of the table is the part that is easiest to get wrong by one
    whole = attention.backward

    def shifted(*arguments):
        *others, dtable, dsinks = whole(*arguments)
        return *others, None if dtable is None else dtable.roll(1, 1), dsinks

    where = Geometry.causal(17)
    monkeypatch.setattr(attention, "backward", shifted)
    with pytest.raises(AssertionError, match="gradient of the scheme"):
        assert_agrees("native", t5(), where, *draw(where, type=torch.float32))


def test_a_decoder_trains_the_same(monkeypatch):
    def slopes(switch):
        monkeypatch.setenv(build.SWITCH, switch)
        torch.manual_seed(0)
        model = Decoder(Shape(vocabulary=16, width=32, heads=4, layers=2, scheme="t5"))
        ids = torch.randint(16, (2, 40))
        model(ids).logsumexp(-1).sum().backward()
        return torch.cat([x.grad.flatten() for x in model.parameters()])

    assert torch.allclose(slopes("on"), slopes("off"), atol=1e-5)


@pytest.mark.parametrize(("tokens", "width"), [(97, 16), (256, 64), (300, 32), (513, 128), (1000, 64)])
@pytest.mark.parametrize("name", ["t5", "alibi"])
def test_errors_are_no_larger_than_those_of_pytorchs_attention(name, tokens, width):
    where, scheme = Geometry.causal(tokens), SCHEMES[name]()
    mask = scheme.bias(where).detach().masked_fill(~where.visible[:, None], float("-inf"))
    ours, theirs = torch.zeros(4), torch.zeros(4)
    for _ in range(3):
        q, k, v = draw(where, kv_heads=4, width=width, type=torch.float32)
        upstream, wide = torch.randn_like(q), [x.detach().double().requires_grad_() for x in (q, k, v)]
        exact = scaled_dot_product_attention(*wide, attn_mask=mask.double())
        true = exact, *torch.autograd.grad(exact, wide, upstream.double())
        for errors, out in (
            (ours, attend(q, k, v, scheme.at(where), route="native")),
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
            Geometry.given(torch.tensor([[[0], [5], [2]]])),
            torch.float32,
            0.0,
            "no table of distances in this geometry",
        ),
        (Alibi(heads=4), Geometry.causal(3), torch.float32, 0.5, "it drops nothing"),
        (Alibi(heads=4), Geometry.causal(3), torch.float64, 0.0, "it computes in float32"),
        (Alibi(heads=4), Geometry.causal(0), torch.float32, 0.0, "a tensor is empty"),
    ],
)
def test_it_says_why_it_refuses(scheme, where, type, dropout, says):
    q, k, v = draw(where, batch=1, type=type)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme.at(where), dropout=dropout, route="native")


def test_small_inputs_and_numbers_that_are_not_finite_go_elsewhere(monkeypatch):
    where = Geometry.causal(3)
    q, k, v = (x.detach() for x in draw(where, type=torch.float32))
    k[0, 0, 0, 0] = float("nan")
    assert explain(q, k, v, t5().at(where)).refused["native"] == "q, k or v holds a number that is not finite"
    monkeypatch.setattr(native, "PAIRS", 73)
    assert explain(q, k, v, t5().at(where)).refused["native"] == "there are fewer than 73 pairs"
    assert explain(q, k, v, Unmarked().at(where)).refused["native"] == "there are fewer than 292 pairs"


def test_it_holds_no_bias_of_queries_times_keys():
    where = Geometry.causal(2000)
    q, k, v = (torch.zeros(1, 4, 2000, 8) for _ in range(3))
    told = explain(q, k, v, t5().at(where))
    assert told.route == "native"
    assert told.bytes < 2000 * 2000


def test_a_failure_inside_is_an_error(monkeypatch):
    monkeypatch.setattr(job, "function", lambda name: lambda given: b"no memory")
    where = Geometry.causal(3)
    with pytest.raises(RuntimeError, match="attention: no memory"):
        attend(*draw(where, type=torch.float32), t5().at(where), route="native")


SINKS = torch.tensor([0.5, -1.0, 2.0, 30.0])
FORMULAS = {"cap": Formula(cap=0.7), "sinks": Formula(sinks=SINKS), "both": Formula(cap=20.0, sinks=SINKS)}


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("formula", FORMULAS)
def test_caps_and_sinks_agree_forward_and_backward(formula, geometry, type):
    where = GEOMETRIES[geometry](17)
    for name in ("none", "t5"):
        assert_agrees("native", SCHEMES[name](), where, *draw(where, type=type), FORMULAS[formula])


@pytest.mark.parametrize("type", TYPES[:2])
@pytest.mark.parametrize("formula", FORMULAS)
def test_caps_and_sinks_agree_over_several_tiles(formula, type):
    for where in (Geometry.causal(650, cached=37), Geometry.packed([530, 3, 130])):
        assert_agrees("native", t5(), where, *draw(where, batch=1, type=type), FORMULAS[formula])


@pytest.mark.parametrize("name", ["cap", "sinks"])
def test_a_mutant_that_forgets_a_part_of_the_formula_on_the_way_back_is_noticed(name, monkeypatch):
    backward, where = attention.backward, Geometry.causal(17)

    def forgetful(gradient, saved, where, scoring, span, learned):
        if name == "cap":
            return backward(gradient, saved, where, scoring._replace(cap=None), span, learned)
        *made, to_sinks = backward(gradient, saved, where, scoring, span, learned)
        return *made, 0 * to_sinks

    monkeypatch.setattr(attention, "backward", forgetful)
    with pytest.raises(AssertionError, match="gradient"):
        assert_agrees("native", Unmarked(), where, *draw(where, type=torch.float32), FORMULAS[name])


def test_products_far_beyond_a_cap_and_close_to_zero_are_bent_to_the_digits():
    where = Geometry.full(64)
    for size in (1e-4, 1e-1, 1.0, 100.0):
        q, k, v = draw(where, type=torch.float32)
        q = (q.detach() * size).requires_grad_()
        assert_agrees("native", Unmarked(), where, q, k, v, Formula(cap=3.0))


def test_a_sink_that_is_not_finite_is_left_to_the_reference():
    q, k, v = draw(Geometry.causal(17), type=torch.float32)
    formula = Formula(sinks=torch.tensor([0.0, -float("inf"), 1.0, 0.0]))
    at = Unmarked().at(Geometry.causal(17))
    assert explain(q, k, v, at, formula=formula).refused["native"] == "a sink is not finite"
    assert torch.allclose(attend(q, k, v, at, formula=formula)[:, 1], attend(q, k, v, at)[:, 1])
