"""A few queries against many keys in C++ give what the formula gives."""

from copy import deepcopy

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.attention._attend import attend_cached
from ordinate.attention._backend import ScoreOptions
from ordinate.attention.backends import decode as backend
from ordinate.attention.kv_buffer import KVBuffer
from ordinate.models.multi_head_attention import MultiHeadAttention
from ordinate.ops.native import build, decode
from ordinate.schemes import T5, Alibi, Encoded, NoPosition
from ordinate.testing.backend import random_qkv
from ordinate.testing.tolerance import assert_as_close

TYPES = [torch.float32, torch.bfloat16]
PLAIN = ScoreOptions()


@pytest.fixture(scope="module")
def _compiler():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("decode")
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def calls(_compiler, monkeypatch):
    """How often C++ was asked: it is switched on, however few the keys."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.setattr(backend, "MIN_CPP_ELEMENTS", 0)
    made, whole = [], decode.attend
    monkeypatch.setattr(decode, "attend", lambda *given, **named: made.append(given) or whole(*given, **named))
    return made


def t5() -> T5:
    scheme = T5(heads=4).requires_grad_(False)
    torch.nn.init.normal_(scheme.table)
    return scheme


def cached(real, tokens):
    read = Geometry.padded(torch.tensor(real).bool())
    return read.next_tokens(tokens).with_past(read)


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}
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
    out = attend(q, k, v, scheme.at(where), score_options=formula, backend="decode")
    plain = attend(q, k, v, scheme.at(where), score_options=formula, backend="reference")
    at = deepcopy(scheme).double().at(where)
    exact = attend(q.double(), k.double(), v.double(), at, score_options=formula, backend="reference")
    assert_as_close(out, plain, exact)
    return out


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_is_the_formula(name, place, type, calls):
    where = PLACES[place]()
    for width, kv_heads in ((8, 2), (64, 1), (7, 4)):
        assert_right(SCHEMES[name](), where, *random_qkv(where, kv_heads=kv_heads, width=width, dtype=type))
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
    formula = ScoreOptions(sinks=torch.tensor([0.5, -1.0, 2.0, 30.0]))
    inputs = random_qkv(where, dtype=torch.float32)
    out = assert_right(t5(), where, *inputs, formula=formula)
    assert calls
    assert not torch.allclose(out, assert_right(t5(), where, *inputs))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", "qkv")
def test_what_is_not_finite_shows_where_it_is_seen_and_nowhere_else(which, bad):
    for where, places in ((Geometry.causal(2, cached=700), (3, 600, -1)), (PLACES["window"](), (3, 900, -1))):
        for place in places:
            inputs = {name: x.detach() for name, x in zip("qkv", random_qkv(where, dtype=torch.float32), strict=True)}
            inputs[which][1, 0, max(place, -2) if which != "q" else -1, 2] = bad
            at = Alibi(heads=4).at(where)
            out, exact = (attend(*inputs.values(), at, backend=name) for name in ("decode", "reference"))
            assert torch.equal(out.isfinite(), exact.isfinite())
            assert torch.allclose(out, exact, atol=1e-6, equal_nan=True)


def test_keys_that_a_window_hides_are_not_read():
    where = Geometry.causal(2, cached=1300, window=600)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    out = attend(q, k, v, NoPosition().at(where), backend="decode")
    k[:, :, :700], v[:, :, :700] = float("nan"), float("nan")
    found = decode.attend(q, k, v, None, None, scale=8**-0.5, seen=slice(701, 1302))
    assert found is not None
    assert attend(q, k, v, NoPosition().at(where), backend="decode").equal(out)


def far(type=torch.float32, kv_heads=2, queries=1):
    """What the steepest of four heads cannot see the far end of, and the flattest can."""
    where = Geometry.causal(queries, cached=4096)
    q, k, v = (x.detach() for x in random_qkv(where, kv_heads=kv_heads, width=16, dtype=type))
    return where, q, k, v, KVBuffer(k, v, k.shape[2])


def slopes(flattest):
    return Alibi(heads=4, min_slope_exponent=flattest)


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("flattest", [1, 4, 8])
def test_leaving_out_what_weighs_nothing_costs_a_rounding_at_most(flattest, kv_heads, queries, type):
    where, q, k, v, room = far(type, kv_heads, queries)
    at = slopes(flattest).at(where)
    out = attend_cached(Encoded(q, k), v, at, room.max_key_norm, backend="decode")
    exact = attend(q.double(), k.double(), v.double(), slopes(flattest).double().at(where), backend="reference")
    assert_as_close(out, attend(q, k, v, at, backend="reference"), exact)
    assert (out.float() - attend(q, k, v, at, backend="decode").float()).abs().max() <= 2 * torch.finfo(type).eps


@pytest.mark.parametrize("type", TYPES)
def test_keys_that_weigh_nothing_are_not_read(type):
    where, q, k, v, room = far(type)
    room.max_key_norm()
    at = slopes(2).at(where)
    out = attend_cached(Encoded(q, k), v, at, room.max_key_norm)
    k[:, :, :3000], v[:, :, :3000] = float("nan"), float("nan")
    # the room has measured what it held, and does not see what was written over it
    assert attend_cached(Encoded(q, k), v, at, room.max_key_norm).equal(out)


@pytest.mark.parametrize("formula", [PLAIN, ScoreOptions(sinks=torch.tensor([0.5, -1.0, 2.0, 30.0]))])
def test_a_long_key_far_away_is_read(formula):
    where, q, k, v, room = far(kv_heads=4)
    # as like the query as can be, where the bias of the head is -10, and of weight beside the many that are nearer
    k[:, :, 4096 - 640] = 30 * q[:, :, 0]
    at = slopes(6).at(where)
    out = attend_cached(Encoded(q, k), v, at, room.max_key_norm, score_options=formula)
    assert torch.allclose(out, attend(q, k, v, at, score_options=formula, backend="reference"), atol=1e-5)
    short = attend_cached(Encoded(q, k), v, at, lambda: room.max_key_norm() / 100, score_options=formula)
    assert (short - out).abs().max() > 0.1, "what is said to be short is left out"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", "kv")
def test_what_is_not_finite_shows_though_it_weighs_nothing(which, bad):
    where, q, k, v, _ = far()
    (k if which == "k" else v)[1, 0, 100, 3] = bad
    at = slopes(2).at(where)
    out = attend_cached(Encoded(q, k), v, at, KVBuffer(k, v, k.shape[2]).max_key_norm)
    exact = attend(q, k, v, at, backend="reference")
    assert out[1, :2].isnan().all()
    assert torch.equal(out.isfinite(), exact.isfinite())
    assert torch.allclose(out, exact, atol=1e-6, equal_nan=True)


def test_lengths_for_other_heads_are_refused():
    where, q, k, v, _ = far()
    with pytest.raises(ValueError, match=r"each key head needs its largest norm; got \(2, 4\) for \(2, 2\)"):
        attend_cached(Encoded(q, k), v, slopes(2).at(where), lambda: torch.ones(2, 4))


def test_lengths_are_asked_for_only_where_a_bias_fades():
    where, q, k, v, room = far()
    wanted = []
    for scheme in (NoPosition(), t5(), slopes(2)):
        attend_cached(Encoded(q, k), v, scheme.at(where), lambda: wanted.append(1) or room.max_key_norm())
    assert len(wanted) == 1


def test_a_layer_that_remembers_leaves_out_what_weighs_nothing(monkeypatch):
    given, whole = [], decode.attend
    monkeypatch.setattr(
        decode, "attend", lambda *all, **named: given.append(named["longest"]) or whole(*all, **named)
    )
    layer, x = MultiHeadAttention(32, 4, kv_heads=2, scheme=slopes(2)), torch.randn(2, 1300, 32)
    with torch.no_grad():
        full, _ = layer(x)
        _, state = layer(x[:, :1297])
        for token in range(1297, 1300):
            y, state = layer(x[:, token : token + 1], state=state)
            assert torch.allclose(y[:, 0], full[:, token], atol=1e-5)
    assert len(given) == 3
    assert all((longest == state.k.norm(dim=-1).amax(-1)).all() for longest in given[-1:])


def test_two_threads_change_no_bit():
    where = Geometry.causal(3, cached=1500)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    alone = attend(q, k, v, Alibi(heads=4).at(where), backend="decode")
    try:
        torch.set_num_threads(2)
        assert attend(q, k, v, Alibi(heads=4).at(where), backend="decode").equal(alone)
        where, q, k, v, room = far()
        many = attend_cached(Encoded(q, k), v, slopes(4).at(where), room.max_key_norm)
        torch.set_num_threads(1)
        assert attend_cached(Encoded(q, k), v, slopes(4).at(where), room.max_key_norm).equal(many)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("why", ["gradient", "type", "cap", "few", "off"])
def test_what_it_is_not_made_for_goes_without(why, calls, monkeypatch):
    where = Geometry.causal(1, cached=16)
    q, k, v = random_qkv(where, dtype=torch.float16 if why == "type" else torch.float32)
    if why != "gradient":
        q, k, v = (x.detach() for x in (q, k, v))
    if why == "few":
        monkeypatch.setattr(backend, "MIN_CPP_ELEMENTS", k.numel() + 1)
    if why == "off":
        monkeypatch.setenv(build.ENV_VARIABLE, "off")
    formula = ScoreOptions(softcap=2.0) if why == "cap" else PLAIN
    attend(q, k, v, t5().at(where), score_options=formula, backend="decode")
    assert not calls
    if why == "gradient":
        with torch.no_grad():
            attend(q, k, v, t5().at(where), backend="decode")
        assert calls


def test_a_bias_that_is_lost_is_noticed(monkeypatch):
    whole = decode.attend
    monkeypatch.setattr(decode, "attend", lambda q, k, v, bias, *rest, **named: whole(q, k, v, None, *rest, **named))
    where = Geometry.causal(2, cached=7)
    with pytest.raises(AssertionError, match="off by"):
        assert_right(Alibi(heads=4), where, *random_qkv(where, dtype=torch.float32))
