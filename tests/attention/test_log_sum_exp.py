import math

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention._attend import BACKENDS, attend_with_lse
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention.backends import offset_bias, row_blocks
from ordinate.schemes import T5, Alibi, NoPosition
from ordinate.testing.backend import GEOMETRIES, random_qkv
from ordinate.testing.tolerance import assert_as_close


def t5() -> T5:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}
TYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(offset_bias, "MIN_PAIRS", 1)
    monkeypatch.setattr(row_blocks, "MAX_BLOCK_SCORES", 2 * 4 * 9 * 4)


def looped(q, k, scheme, where):
    """Log-sum-exp by the formula, one query at a time."""
    bias, out = scheme.bias(where), torch.full(q.shape[:3], -math.inf, dtype=q.dtype)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        g = h // (q.shape[1] // k.shape[1])
        seen = where.visible[b % len(where.visible), i]
        scores = (k[b, g] @ q[b, h, i]) / math.sqrt(q.shape[3])
        if bias is not None:
            scores = scores + bias[b % len(bias), h, i]
        if seen.any():
            out[b, h, i] = scores[seen].exp().sum().log()
    return out


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
@torch.no_grad()
def test_every_backend_returns_it_with_the_output(name, geometry, type):
    where, scheme = GEOMETRIES[geometry](9), SCHEMES[name]()
    q, k, v = random_qkv(where, dtype=type)
    exact = looped(q.double(), k.double(), scheme.double(), where)
    # the scheme was converted to float64 for the exact result; the tested one has its own dtype
    scheme = scheme.float() if type != torch.float64 else scheme
    wide = torch.promote_types(type, torch.float32)
    usual = looped(q.to(wide), k.to(wide), scheme, where)
    tried = 0
    for backend in BACKENDS:
        if BACKENDS[backend].call_unsupported_reason(_call(q, k, v, scheme.at(where))) is None:
            out, lse = attend_with_lse(q, k, v, scheme.at(where), backend=backend)
            assert_as_close(lse, usual, exact, what=backend)
            assert out.equal(attend(q, k, v, scheme.at(where), backend=backend))
            tried += 1
    assert tried > 1


def _call(q, k, v, at):
    return AttentionCall(q, k, v, at, 1 / math.sqrt(q.shape[3]), 0.0, ScoreOptions())


def test_a_query_without_visible_keys_has_minus_infinity():
    where = Geometry.padded(torch.tensor([[False, True, True]]))
    q, k, v = random_qkv(where, batch=1, dtype=torch.float32)
    _, lse = attend_with_lse(q, k, v, NoPosition().at(where))
    assert (lse[:, :, 0] == -math.inf).all()
    assert lse[:, :, 1:].isfinite().all()
    assert attend_with_lse(q[:, :, :0], k, v, NoPosition().at(Geometry.cross(0, 3)))[1].shape == (1, 4, 0)
    assert (attend_with_lse(q, k[:, :, :0], v[:, :, :0], NoPosition().at(Geometry.cross(3, 0)))[1] == -math.inf).all()


def test_attention_over_parts_of_the_keys_combines_to_the_whole():
    where, scheme = Geometry.causal(4, cached=12), Alibi(heads=4)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float64))
    parts = [slice(0, 5), slice(5, 16)]
    given = [(k[:, :, part], v[:, :, part], scheme.at(where.block(slice(None), part))) for part in parts]
    (one, first), (two, second) = (attend_with_lse(q, *some) for some in given)
    share = (first - second).sigmoid()[..., None]
    whole = attend(q, k, v, scheme.at(where))
    assert torch.allclose(share * one + (1 - share) * two, whole, rtol=0, atol=1e-12)


def test_gradients_flow_through_the_output_alone():
    where = Geometry.causal(5)
    q, k, v = random_qkv(where, dtype=torch.float64)
    out, lse = attend_with_lse(q, k, v, Alibi(heads=4).at(where))
    assert out.requires_grad
    assert not lse.requires_grad


def test_blocks_of_rows_agree_with_all_rows(monkeypatch):
    where = Geometry.causal(9, window=4)
    q, k, v = random_qkv(where, dtype=torch.float64)
    scheme = t5().double()
    whole = attend_with_lse(q, k, v, scheme.at(where))[1]
    monkeypatch.setattr("ordinate.attention._backend.MAX_BLOCK_SCORES", 1)
    assert torch.allclose(attend_with_lse(q, k, v, scheme.at(where))[1], whole, rtol=0, atol=1e-14)


def test_the_environment_variable_forces_a_backend(monkeypatch):
    where = Geometry.causal(5)
    inputs = random_qkv(where, dtype=torch.float32)
    at = Alibi(heads=4).at(where)
    monkeypatch.setenv("ORDINATE_ATTENTION_BACKEND", "reference")
    assert explain(*inputs, at).backend == "reference"
    # the argument takes precedence
    assert explain(*inputs, at, backend="sdpa").backend == "sdpa"
    assert attend(*inputs, at).equal(attend(*inputs, at, backend="reference"))
    monkeypatch.setenv("ORDINATE_ATTENTION_BACKEND", "refrence")
    with pytest.raises(
        ValueError, match=r"no backend is named 'refrence'; there are: .*; did you mean 'reference'\?"
    ):
        attend(*inputs, at)
    monkeypatch.setenv("ORDINATE_ATTENTION_BACKEND", "decode")
    with pytest.raises(
        ValueError, match="the backend 'decode' must support the call; it does not: there are more than 4"
    ):
        attend(*inputs, at)
    monkeypatch.setenv("ORDINATE_ATTENTION_BACKEND", "")
    assert explain(*inputs, at).backend != "reference"


def test_a_sink_is_part_of_the_log_sum_exp():
    where = Geometry.causal(5)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float64))
    at, sinks = Alibi(heads=4).at(where), torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    _, lse = attend_with_lse(q, k, v, at, score_options=ScoreOptions(sinks=sinks, softcap=2.0))
    _, keys = attend_with_lse(q, k, v, at, score_options=ScoreOptions(softcap=2.0))
    assert torch.allclose(lse, torch.logaddexp(keys, sinks[:, None].expand_as(keys)), rtol=0, atol=1e-12)
    assert not torch.allclose(keys, attend_with_lse(q, k, v, at)[1])
