import pytest
import torch
from torch.nn.functional import normalize

from ordinate.ops.decay import decaying_linear_attention
from ordinate.ops.delta_rule import delta_rule

WHY = "flash-linear-attention is not installed: it asks for triton"
rwkv6 = pytest.importorskip("fla.ops.rwkv6.recurrent_naive", reason=WHY)
dplr = pytest.importorskip("fla.ops.generalized_delta_rule.dplr.naive", reason=WHY)


def draw():
    return torch.randn(2, 3, 64, 16)


def test_decaying_linear_attention_matches():
    r, k, v, w, bonus = draw(), draw(), draw(), -torch.exp(draw()), torch.randn(3, 16)
    ours, _ = decaying_linear_attention(r, k, v, w, bonus, torch.zeros(2, 3, 16, 16))
    theirs, _ = rwkv6.naive_recurrent_rwkv6(r, k, v, w, bonus, scale=1.0)
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


def test_the_delta_rule_matches():
    r, k, v, w, erased = draw(), draw(), draw(), -0.6 * torch.sigmoid(draw()), normalize(draw(), dim=-1)
    moved = erased * torch.sigmoid(draw())
    ours, _ = delta_rule(r, k, v, w, -erased, moved, torch.zeros(2, 3, 16, 16))
    theirs, _ = dplr.dplr_recurrence(r, k, v, -erased, moved, w)
    # theirs divides by the square root of the width
    assert (ours - 4 * theirs).abs().max() < 1e-5 * ours.abs().max()
