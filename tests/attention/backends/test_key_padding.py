import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention.backends import key_padding
from ordinate.schemes import Alibi, NoPosition, Rope
from ordinate.testing.backend import assert_agrees, random_qkv

REAL = torch.arange(9) < torch.tensor([[9], [4]])
WHERES = {
    "encoder": lambda: Geometry.padded(REAL, causal=False),
    "left": lambda: Geometry.padded(REAL.flip(1), causal=False),
    "cross": lambda: Geometry.cross(5, 9, real=REAL),
    "nothing to see": lambda: Geometry.cross(5, 9, real=REAL & (torch.arange(2) > 0)[:, None]),
    "one document": lambda: Geometry.packed([9], causal=False),
    "one query": lambda: Geometry.padded(REAL).block(slice(8, 9)),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WHERES)
def test_it_agrees_with_the_reference_forward_and_backward(name, type):
    where = WHERES[name]()
    for kv_heads in (1, 4):
        q, k, v = random_qkv(where, kv_heads=kv_heads, dtype=type)
        assert_agrees("key_padding", NoPosition(), where, q, k, v)
        out = attend(q, k, v, NoPosition().at(where), backend="key_padding")
        assert (out[~where.visible.any(-1).expand(2, -1)[:, None].expand(out.shape[:3])] == 0).all()


def test_a_misplaced_padding_mask_is_detected(monkeypatch):
    where, real = WHERES["encoder"](), key_padding._real
    monkeypatch.setattr(key_padding, "_real", lambda where: tuple(x.roll(1, 1) for x in real(where)))
    with pytest.raises(AssertionError):
        assert_agrees("key_padding", NoPosition(), where, *random_qkv(where, dtype=torch.float64))


def test_it_is_chosen_and_holds_no_mask_of_queries_times_keys():
    real = torch.arange(600) < torch.tensor([[600], [401]])
    where = Geometry.padded(real, causal=False)
    q, k, v = random_qkv(where, dtype=torch.float64)
    said = explain(q, k, v, NoPosition().at(where), backend="key_padding")
    assert said.workspace_bytes < 600 * 600
    small = Geometry.padded(REAL, causal=False)
    assert explain(*random_qkv(small, dtype=torch.float32), Rope(head_width=8).at(small)).backend == "key_padding"


@pytest.mark.parametrize(
    ("scheme", "where", "says"),
    [
        (Alibi(heads=4), WHERES["encoder"](), "the scheme's bias differs between queries"),
        (NoPosition(), Geometry.full(9), "there is no padding"),
        (NoPosition(), Geometry.padded(REAL), "causality or a window makes the mask differ between queries"),
        (
            NoPosition(),
            Geometry.padded(REAL, causal=False, window=3),
            "causality or a window makes the mask differ between queries",
        ),
        (NoPosition(), Geometry.packed([4, 5], causal=False), "a row contains several documents"),
    ],
)
def test_unsupported_calls_are_rejected_with_a_reason(scheme, where, says):
    with pytest.raises(ValueError, match=says):
        attend(*random_qkv(where, dtype=torch.float32), scheme.at(where), backend="key_padding")
