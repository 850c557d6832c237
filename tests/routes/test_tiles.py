from unittest import mock

import pytest
import torch

from ordinate import T5, Alibi, Geometry, Rope, Unmarked, attend, explain
from ordinate.ops import product, reach
from ordinate.ops import tiles as blocks
from ordinate.routes import tiles
from ordinate.testing.route import GEOMETRIES, assert_agrees, draw

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def t5() -> T5:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": Unmarked, "alibi": lambda: Alibi(heads=4), "t5": t5}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    # blocks smaller than the texts, and texts as small as wanted
    monkeypatch.setattr(blocks, "ROWS", 5)
    monkeypatch.setattr(tiles, "PAIRS", 0)
    monkeypatch.setattr(tiles, "onednn_is_faster", lambda: True)


@pytest.mark.parametrize("engine", ["plain", "onednn"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type, engine, monkeypatch):
    if engine == "onednn" and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(product, "onednn_is_faster", lambda: engine == "onednn")
    monkeypatch.setattr(product, "bfloat16_is_faster", lambda: engine == "onednn")
    where = GEOMETRIES[geometry](17)
    assert_agrees("tiles", SCHEMES[name](), where, *draw(where, type=type))


@pytest.mark.parametrize("width", [1, 8, 24])
@pytest.mark.parametrize("tokens", [5, 63, 129])
def test_it_agrees_at_odd_lengths_and_head_widths(tokens, width):
    for geometry, name in (("causal", "none"), ("window", "alibi"), ("left", "t5"), ("cross", "t5")):
        where = GEOMETRIES[geometry](tokens)
        assert_agrees("tiles", SCHEMES[name](), where, *draw(where, width=width, type=torch.float32))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_and_their_gradients(kv_heads):
    where = Geometry.causal(9)
    assert_agrees("tiles", t5(), where, *draw(where, kv_heads=kv_heads, type=torch.float64))


def test_values_may_have_a_width_of_their_own():
    where = Geometry.causal(9)
    q, k, _ = draw(where, type=torch.float64)
    v = torch.randn(2, 2, 9, 3, dtype=torch.float64, requires_grad=True)
    assert_agrees("tiles", t5(), where, q, k, v)


def test_queries_that_see_nothing_give_zero_and_pass_no_gradient():
    # twenty queries, five keys, and a window that leaves the far queries none
    where = Geometry.full(5, window=3)
    where = Geometry(torch.arange(20)[None, :, None], where.k_pos, window=3, ordered=True)
    q, k, v = draw(where, type=torch.float64)
    out = attend(q, k, v, t5().double().at(where), route="tiles")
    assert (out[:, :, 8:] == 0).all()
    (slope,) = torch.autograd.grad(out.square().sum(), q)
    assert (slope[:, :, 8:] == 0).all()
    assert (slope[:, :, :6] != 0).any(-1).all()
    assert_agrees("tiles", t5(), where, q, k, v)


def test_strided_inputs_are_read_as_they_are():
    where = Geometry.causal(9)
    x = torch.randn(2, 9, 4, 8).transpose(1, 2)
    expanded = torch.randn(1, 1, 9, 8).expand(2, 4, 9, 8)
    for q in (x, expanded):
        at = t5().at(where)
        same = attend(q.contiguous(), q.contiguous(), q.contiguous(), at, route="tiles")
        assert attend(q, q, q, at, route="tiles").equal(same)


@pytest.mark.parametrize("type", TYPES[:3])
def test_keys_that_weigh_nothing_are_left_out(type, monkeypatch):
    monkeypatch.setattr(blocks, "ROWS", 50)
    where = Geometry.causal(300, cached=20)
    scheme = Alibi(heads=4)
    q, k, v = draw(where, batch=1, type=type)
    with mock.patch.object(blocks, "_weights", side_effect=blocks._weights) as spy:
        attend(q, k, v, scheme.at(where), route="tiles")
    assert spy.call_args_list[0].args[-1].keys.start >= 50
    assert_agrees("tiles", scheme, where, q, k, v)
    if type == torch.bfloat16:
        return
    # a bound that is too tight is noticed
    monkeypatch.setattr(reach, "SHARE", 1e4 / torch.finfo(type).eps)
    with pytest.raises(AssertionError, match=r"off by|not finite"):
        assert_agrees("tiles", scheme, where, q, k, v)


def test_a_lost_diagonal_is_noticed(monkeypatch):
    # the gradient of the table is the part that is easiest to get wrong by one
    whole = blocks._add_diagonals

    def shifted(sums, slope, block):
        whole(sums, slope.roll(1, 1), block)

    where = Geometry.causal(17)
    monkeypatch.setattr(blocks, "_add_diagonals", shifted)
    with pytest.raises(AssertionError, match="gradient of the scheme"):
        assert_agrees("tiles", t5(), where, *draw(where, type=torch.float64))


def test_a_route_that_is_wrong_is_not_timed(monkeypatch, capsys):
    from benchmarks.attention import timed
    from benchmarks.attention.measuring import is_green

    assert timed(["t5@tiles", "t5@no such route"]) == ["t5@tiles"]
    is_green.cache_clear()
    monkeypatch.setattr(blocks, "_add_diagonals", lambda sums, slope, block: None)
    assert timed(["t5@tiles"]) == []
    assert "not timed: t5 by tiles: gradient of the scheme" in capsys.readouterr().out
    is_green.cache_clear()


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_dropped_weights_give_nothing_and_the_others_make_up_for_it(geometry):
    where = GEOMETRIES[geometry](17)
    scheme = t5().double()
    q, k, _ = draw(where, type=torch.float64)
    # the values are one key each: what comes out are the weights
    v = torch.eye(where.shape[1], dtype=torch.float64).expand(2, 2, -1, -1).clone().requires_grad_()
    whole = attend(q, k, v, scheme.at(where), route="reference")
    torch.manual_seed(3)
    out = attend(q, k, v, scheme.at(where), dropout=0.3, route="tiles")
    factors = torch.where(whole > 1e-12, out.detach() / whole.detach(), 0.0)
    values = factors[whole > 1e-12]
    assert torch.allclose(values * (values - 1 / 0.7), torch.zeros_like(values), atol=1e-6)
    assert abs(float((values == 0).double().mean()) - 0.3) < 5 * (0.21 / len(values)) ** 0.5
    # the way back drops the same ones
    upstream, learned = torch.randn_like(out), [q, k, v, scheme.table]
    found = torch.autograd.grad(out, learned, upstream)
    weights = attend(q, k, v.detach(), scheme.at(where), route="reference") * factors
    true = torch.autograd.grad(weights @ v.repeat_interleave(2, 1), learned, upstream)
    for one, two in zip(found, true, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    ("scheme", "where", "dropout", "says"),
    [
        (
            Alibi(heads=4),
            Geometry.given(torch.tensor([[[0], [5], [2]]])),
            0.0,
            "no table of distances in this geometry",
        ),
    ],
)
def test_it_says_why_it_refuses(scheme, where, dropout, says):
    q, k, v = draw(where, batch=1, type=torch.float32)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme.at(where), dropout=dropout, route="tiles")


def test_numbers_that_are_not_finite_go_elsewhere():
    where = Geometry.causal(3)
    q, k, v = (x.detach() for x in draw(where, type=torch.float32))
    k[0, 0, 0, 0] = float("nan")
    assert explain(q, k, v, t5().at(where)).refused["tiles"] == "q, k or v holds a number that is not finite"


def test_small_inputs_and_fast_machines_leave_it_to_pytorch(monkeypatch):
    where = Geometry.causal(9)
    inputs = draw(where, type=torch.float32)
    monkeypatch.setattr(tiles, "onednn_is_faster", lambda: False)
    said = explain(*inputs, Rope(head_width=8).at(where)).refused["tiles"]
    assert said == "without a bias PyTorch's own attention is as fast here"
    assert explain(*inputs, t5().at(where)).route == "tiles"
    monkeypatch.setattr(tiles, "PAIRS", 82)
    assert explain(*inputs, t5().at(where)).refused["tiles"] == "there are fewer than 82 pairs in a head"


def test_the_engine_is_tried_out_once():
    for engine in (product.onednn_is_faster, product.bfloat16_is_faster):
        assert engine() in (True, False)
        assert engine.cache_info().currsize == 1


def test_gradients_of_other_types_are_multiplied_in_float32_at_least(monkeypatch):
    monkeypatch.setattr(product, "bfloat16_is_faster", lambda: True)
    types = [product.gradient_type(type) for type in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]
    assert types == [torch.float32, torch.bfloat16, torch.float32, torch.float64]
    monkeypatch.setattr(product, "bfloat16_is_faster", lambda: False)
    assert product.gradient_type(torch.bfloat16) == torch.float32


def test_it_holds_no_bias_of_queries_times_keys():
    where = Geometry.causal(1000)
    at = t5().at(where)
    q, k, v = (torch.zeros(1, 4, 1000, 8) for _ in range(3))
    assert explain(q, k, v, at, route="tiles").bytes < 4 * 1000 * 1000
    assert at.table.shape == (4, 1999)
