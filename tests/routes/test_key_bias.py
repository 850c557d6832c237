import pytest
import torch

from ordinate import Alibi, Geometry, Rope, Unmarked, attend, explain
from ordinate.routes import key_bias
from ordinate.testing.route import assert_agrees, draw

REAL = torch.arange(9) < torch.tensor([[9], [4]])
WHERES = {
    "encoder": lambda: Geometry.padded(REAL, causal=False),
    "left": lambda: Geometry.padded(REAL.flip(1), causal=False),
    "cross": lambda: Geometry.cross(5, 9, real=REAL),
    "nothing to see": lambda: Geometry.cross(5, 9, real=REAL & (torch.arange(2) > 0)[:, None]),
    "one document": lambda: Geometry.packed([9], causal=False),
    "one query": lambda: Geometry.padded(REAL).block(slice(8, 9)),
}


@pytest.mark.parametrize("type", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WHERES)
def test_it_agrees_with_the_reference_forward_and_backward(name, type):
    where = WHERES[name]()
    for kv_heads in (1, 4):
        q, k, v = draw(where, kv_heads=kv_heads, type=type)
        assert_agrees("key_bias", Unmarked(), where, q, k, v)
        out = attend(q, k, v, Unmarked().at(where), route="key_bias")
        assert (out[~where.visible.any(-1).expand(2, -1)[:, None].expand(out.shape[:3])] == 0).all()


def test_padding_in_the_wrong_place_is_noticed(monkeypatch):
    where, real = WHERES["encoder"](), key_bias._real
    monkeypatch.setattr(key_bias, "_real", lambda where: tuple(x.roll(1, 1) for x in real(where)))
    with pytest.raises(AssertionError):
        assert_agrees("key_bias", Unmarked(), where, *draw(where, type=torch.float64))


def test_it_is_taken_and_holds_no_mask_of_queries_times_keys():
    real = torch.arange(600) < torch.tensor([[600], [401]])
    where = Geometry.padded(real, causal=False)
    q, k, v = draw(where, type=torch.float64)
    said = explain(q, k, v, Unmarked().at(where), route="key_bias")
    assert said.bytes < 600 * 600
    small = Geometry.padded(REAL, causal=False)
    assert explain(*draw(small, type=torch.float32), Rope(head_width=8).at(small)).route == "key_bias"


@pytest.mark.parametrize(
    ("scheme", "where", "says"),
    [
        (Alibi(heads=4), WHERES["encoder"](), "the scheme's bias tells queries apart"),
        (Unmarked(), Geometry.full(9), "no key is hidden from all"),
        (Unmarked(), Geometry.padded(REAL), "causality or a window tells queries apart"),
        (Unmarked(), Geometry.padded(REAL, causal=False, window=3), "causality or a window tells queries apart"),
        (Unmarked(), Geometry.packed([4, 5], causal=False), "a row holds several documents"),
    ],
)
def test_it_says_why_it_refuses(scheme, where, says):
    with pytest.raises(ValueError, match=says):
        attend(*draw(where, type=torch.float32), scheme.at(where), route="key_bias")
