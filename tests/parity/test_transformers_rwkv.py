import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.rwkv4 import Rwkv4
from ordinate.ops.wkv import empty_sums, wkv
from ordinate.schemes import NoPosition

modeling = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")


def test_the_weighted_mean_and_its_gradients_match():
    k, v, pace, bonus = torch.randn(2, 100, 24), torch.randn(2, 100, 24), torch.randn(24), torch.randn(24)
    leaves = [x.requires_grad_() for x in (k, v, pace, bonus)]
    ours, _ = wkv(k, v, -torch.exp(pace), bonus, empty_sums(k))
    theirs, _ = modeling.rwkv_linear_attention_cpu(pace, bonus, k, v)
    assert (ours - theirs).abs().max() < 1e-6 * theirs.abs().max()
    asked = torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def test_time_mixing_matches():
    transformers = pytest.importorskip("transformers")
    config = transformers.RwkvConfig(vocab_size=11, hidden_size=24, attention_hidden_size=24, num_hidden_layers=2)
    theirs, mixer = modeling.RwkvSelfAttention(config, 0), Rwkv4(width=24, layers=2)
    pairs = {
        "time_decay": mixer.decay,
        "time_first": mixer.bonus,
        "time_mix_key": mixer.key_share,
        "time_mix_value": mixer.value_share,
        "time_mix_receptance": mixer.gate_share,
        "key.weight": mixer.key,
        "value.weight": mixer.value,
        "receptance.weight": mixer.gate,
        "output.weight": mixer.out,
    }
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            pairs[name].normal_()
            parameter.copy_(pairs[name].view(parameter.shape))
    x = torch.randn(2, 50, 24)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(50)))
    expected, _ = theirs(x)
    assert (ours - expected).abs().max() < 1e-6 * expected.abs().max()
