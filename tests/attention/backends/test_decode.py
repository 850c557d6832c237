from unittest import mock

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention._backend import ScoreOptions
from ordinate.attention.backends import decode
from ordinate.schemes import T5, Alibi, NoPosition
from ordinate.testing.backend import assert_agrees, random_qkv

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def t5() -> T5:
    """T5 with a bias table large enough that a missing bias is detected."""
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


def cached(real, tokens):
    """Geometry of padded prompts that are continued by some tokens."""
    read = Geometry.padded(torch.tensor(real).bool())
    return read.next_tokens(tokens).with_past(read)


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}
PLACES = {
    "newest": lambda: Geometry.causal(1, cached=16),
    "few": lambda: Geometry.causal(3, cached=14),
    "window": lambda: Geometry.causal(2, cached=15, window=4),
    "left": lambda: cached([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], 2),
    "right": lambda: cached([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], 1),
    "packed": lambda: Geometry.packed([5, 6]).block(slice(7, 10)),
    "cross": lambda: Geometry.cross(2, 9),
    "hidden": lambda: Geometry.cross(2, 9, real=torch.tensor([[False] * 9, [True] * 9])),
    "given": lambda: Geometry.from_positions(torch.rand(2, 9, 1, dtype=torch.float64) * 20).block(slice(6, 9)),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SCHEMES)
# t5 needs integer positions
@pytest.mark.where(lambda name, place: (name, place) != ("t5", "given"))
def test_it_agrees_with_the_reference_forward_and_backward(name, place, type):
    where = PLACES[place]()
    assert_agrees("decode", SCHEMES[name](), where, *random_qkv(where, dtype=type))


@pytest.mark.parametrize("keys", [2, 63, 129, 1000])
@pytest.mark.parametrize("type", TYPES)
def test_it_agrees_at_odd_lengths_and_head_widths_when_the_cache_is_converted_in_pieces(keys, type, monkeypatch):
    monkeypatch.setattr(decode, "CONVERTED_ELEMENTS", 2 * 2 * 7 * 50)
    where = Geometry.causal(1, cached=keys - 1)
    for width in (1, 7):
        assert_agrees("decode", Alibi(heads=4), where, *random_qkv(where, width=width, dtype=type))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_in_order(kv_heads):
    where = Geometry.causal(3, cached=9)
    q, k, v = random_qkv(where, kv_heads=kv_heads, dtype=torch.float64)
    assert_agrees("decode", t5(), where, q, k, v)


def test_values_may_have_another_width_and_any_memory_layout():
    where = Geometry.causal(2, cached=7)
    q, k = torch.randn(2, 2, 4, 8).transpose(1, 2), torch.randn(2, 9, 2, 16)[..., ::2].transpose(1, 2)
    v = torch.randn(2, 1, 9, 3).expand(2, 2, 9, 3)
    assert_agrees("decode", Alibi(heads=4), where, q, k, v)


def test_keys_are_not_repeated_and_the_cache_is_not_converted_at_once():
    where = Geometry.causal(1, cached=4095)
    q, k, v = (x.detach() for x in random_qkv(where, heads=8, kv_heads=2, width=64, dtype=torch.bfloat16))
    with mock.patch.object(torch.Tensor, "repeat_interleave", side_effect=AssertionError):
        out = attend(q, k, v, NoPosition().at(where), backend="decode")
    assert out.dtype == torch.bfloat16
    assert explain(q, k, v, NoPosition().at(where), backend="decode").workspace_bytes < 4 * k.numel()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", "qkv")
def test_nan_and_infinity_reach_only_the_rows_that_see_them(which, bad):
    where = Geometry.causal(2, cached=7)
    inputs = {name: x.detach() for name, x in zip("qkv", random_qkv(where, dtype=torch.float32), strict=True)}
    inputs[which][1, 0, -1, 2] = bad
    at = Alibi(heads=4).at(where)
    out, exact = (attend(*inputs.values(), at, backend=backend) for backend in ("decode", "reference"))
    assert torch.equal(out.isfinite(), exact.isfinite())
    assert not out.isfinite().all()
    assert torch.allclose(out, exact, atol=1e-6, equal_nan=True)


def test_a_wrong_order_of_heads_is_detected(monkeypatch):
    where = Geometry.causal(2, cached=7)
    scores = decode._scores
    monkeypatch.setattr(decode, "_scores", lambda rows, k: scores(rows.flip(2), k))
    with pytest.raises(AssertionError, match="output"):
        assert_agrees("decode", Alibi(heads=4), where, *random_qkv(where, dtype=torch.float64))


@pytest.mark.parametrize(
    ("where", "dropout", "says"),
    [
        (Geometry.causal(5, cached=9), 0.0, "there are more than 4 queries"),
        (Geometry.causal(3), 0.0, "there are no more keys than queries"),
        (Geometry.causal(1, cached=4), 0.5, "dropout is not supported"),
    ],
)
def test_unsupported_calls_are_rejected_with_a_reason(where, dropout, says):
    q, k, v = random_qkv(where, dtype=torch.float32)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, NoPosition().at(where), dropout=dropout, backend="decode")


def test_a_content_dependent_scheme_is_rejected():
    class Content(NoPosition):
        def content_bias(self, q, k, where):
            return None

    where = Geometry.causal(1, cached=4)
    q, k, v = random_qkv(where, dtype=torch.float32)
    told = explain(q, k, v, Content().at(where)).unsupported["decode"]
    assert told == "the scheme's content_bias needs every head's keys or weights"


@pytest.mark.parametrize(
    "formula", [ScoreOptions(softcap=1.5), ScoreOptions(sinks=torch.tensor([0.5, -1.0, 2.0, 0.0]))]
)
@pytest.mark.parametrize("place", ["few", "left", "hidden"])
def test_soft_caps_and_sinks_agree_with_the_reference(place, formula):
    where = PLACES[place]()
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float64))
    at = t5().double().at(where)
    one, other = (attend(q, k, v, at, score_options=formula, backend=backend) for backend in ("decode", "reference"))
    assert torch.allclose(one, other, rtol=0, atol=1e-12)
    assert not torch.allclose(one, attend(q, k, v, at))
