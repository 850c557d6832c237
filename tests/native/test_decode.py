"""A few queries against many keys in C++ give what the formula gives."""

from copy import deepcopy

import pytest
import torch

from ordinate import T5, Alibi, Geometry, Unmarked, attend
from ordinate.native import build, decode
from ordinate.route import Formula
from ordinate.routes import decode as route
from ordinate.testing.route import draw
from ordinate.testing.tolerance import assert_as_close

TYPES = [torch.float32, torch.bfloat16]
PLAIN = Formula()


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.SWITCH)
        reason = build.reason("decode")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def calls(_compiler, monkeypatch):
    """How often C++ was asked: it is switched on, however few the keys."""
    monkeypatch.delenv(build.SWITCH)
    monkeypatch.setattr(route, "MANY", 0)
    made, whole = [], decode.attend
    monkeypatch.setattr(decode, "attend", lambda *given, **named: made.append(given) or whole(*given, **named))
    return made


def t5() -> T5:
    scheme = T5(heads=4).requires_grad_(False)
    torch.nn.init.normal_(scheme.table)
    return scheme


def cached(real, tokens):
    read = Geometry.padded(torch.tensor(real).bool())
    return read.following(tokens).after(read)


SCHEMES = {"none": Unmarked, "alibi": lambda: Alibi(heads=4), "t5": t5}
PLACES = {
    "newest": lambda: Geometry.causal(1, cached=16),
    "few": lambda: Geometry.causal(3, cached=14),
    "many keys": lambda: Geometry.causal(2, cached=1100),
    "window": lambda: Geometry.causal(2, cached=1300, window=600),
    "left": lambda: cached([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], 2),
    "right": lambda: cached([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], 1),
    "packed": lambda: Geometry.packed([5, 6]).block(slice(7, 10)),
    "hidden": lambda: Geometry.cross(2, 9, real=torch.tensor([[False] * 9, [True] * 9])),
}


def assert_right(scheme, where, q, k, v, formula=PLAIN):
    q, k, v = (x.detach() for x in (q, k, v))
    out = attend(q, k, v, scheme.at(where), formula=formula, route="decode")
    plain = attend(q, k, v, scheme.at(where), formula=formula, route="reference")
    at = deepcopy(scheme).double().at(where)
    exact = attend(q.double(), k.double(), v.double(), at, formula=formula, route="reference")
    assert_as_close(out, plain, exact)
    return out


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_is_the_formula(name, place, type, calls):
    where = PLACES[place]()
    for width, kv_heads in ((8, 2), (64, 1), (7, 4)):
        assert_right(SCHEMES[name](), where, *draw(where, kv_heads=kv_heads, width=width, type=type))
    assert len(calls) == 3


@pytest.mark.parametrize("type", TYPES)
def test_values_may_have_a_width_of_their_own_and_memory_any_order(type, calls):
    where = Geometry.causal(2, cached=700)
    q, k = torch.randn(2, 2, 4, 8).transpose(1, 2), torch.randn(2, 702, 2, 16)[..., ::2].transpose(1, 2)
    v = torch.randn(2, 1, 702, 3).expand(2, 2, 702, 3)
    assert_right(t5(), where, *(x.to(type) for x in (q, k, v)))
    fused = torch.randn(2, 702, 2, 3 * 128).to(type).transpose(1, 2)
    q = torch.randn(2, 4, 2, 128).to(type)
    assert_right(Alibi(heads=4), where, q, fused[..., :128], fused[..., 128:256])
    assert len(calls) == 2


@pytest.mark.parametrize("place", ["few", "left", "hidden", "many keys"])
def test_it_knows_sinks(place, calls):
    where = PLACES[place]()
    formula = Formula(sinks=torch.tensor([0.5, -1.0, 2.0, 30.0]))
    inputs = draw(where, type=torch.float32)
    out = assert_right(t5(), where, *inputs, formula=formula)
    assert calls
    assert not torch.allclose(out, assert_right(t5(), where, *inputs))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", "qkv")
def test_what_is_not_finite_shows_where_it_is_seen_and_nowhere_else(which, bad):
    for where, places in ((Geometry.causal(2, cached=700), (3, 600, -1)), (PLACES["window"](), (3, 900, -1))):
        for place in places:
            inputs = {name: x.detach() for name, x in zip("qkv", draw(where, type=torch.float32), strict=True)}
            inputs[which][1, 0, max(place, -2) if which != "q" else -1, 2] = bad
            at = Alibi(heads=4).at(where)
            out, exact = (attend(*inputs.values(), at, route=name) for name in ("decode", "reference"))
            assert torch.equal(out.isfinite(), exact.isfinite())
            assert torch.allclose(out, exact, atol=1e-6, equal_nan=True)


def test_keys_that_a_window_hides_are_not_read():
    where = Geometry.causal(2, cached=1300, window=600)
    q, k, v = (x.detach() for x in draw(where, type=torch.float32))
    out = attend(q, k, v, Unmarked().at(where), route="decode")
    k[:, :, :700], v[:, :, :700] = float("nan"), float("nan")
    found = decode.attend(q, k, v, None, None, scale=8**-0.5, seen=slice(701, 1302))
    assert found is not None
    assert attend(q, k, v, Unmarked().at(where), route="decode").equal(out)


def test_two_threads_change_no_bit():
    where = Geometry.causal(3, cached=1500)
    q, k, v = (x.detach() for x in draw(where, type=torch.float32))
    alone = attend(q, k, v, Alibi(heads=4).at(where), route="decode")
    try:
        torch.set_num_threads(2)
        assert attend(q, k, v, Alibi(heads=4).at(where), route="decode").equal(alone)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("why", ["gradient", "type", "cap", "few", "off"])
def test_what_it_is_not_made_for_goes_without(why, calls, monkeypatch):
    where = Geometry.causal(1, cached=16)
    q, k, v = draw(where, type=torch.float16 if why == "type" else torch.float32)
    if why != "gradient":
        q, k, v = (x.detach() for x in (q, k, v))
    if why == "few":
        monkeypatch.setattr(route, "MANY", k.numel() + 1)
    if why == "off":
        monkeypatch.setenv(build.SWITCH, "off")
    formula = Formula(cap=2.0) if why == "cap" else PLAIN
    attend(q, k, v, t5().at(where), formula=formula, route="decode")
    assert not calls
    if why == "gradient":
        with torch.no_grad():
            attend(q, k, v, t5().at(where), route="decode")
        assert calls


def test_a_bias_that_is_lost_is_noticed(monkeypatch):
    whole = decode.attend
    monkeypatch.setattr(decode, "attend", lambda q, k, v, bias, *rest, **named: whole(q, k, v, None, *rest, **named))
    where = Geometry.causal(2, cached=7)
    with pytest.raises(AssertionError, match="off by"):
        assert_right(Alibi(heads=4), where, *draw(where, type=torch.float32))
