import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ordinate import Geometry
from ordinate.mixers.linformer import Linformer
from ordinate.schemes import NoPosition, Sinusoidal

FULL = {tokens: NoPosition().at(Geometry.full(tokens)) for tokens in (1, 5, 7)}


def made(**options):
    return Linformer(**{"width": 8, "heads": 2, "max_length": 7, "summaries": 3} | options).double()


def by_the_formula(mixer, x):
    """Reference implementation, head by head."""
    told = mixer.summarise[:, : x.shape[1]] @ x
    q = x @ mixer.query.weight.T
    k, v = (told @ mixer.key_value.weight.T).chunk(2, -1)
    groups, outs = q.shape[2] // k.shape[2], []
    for head in range(2):
        own, shared = slice(4 * head, 4 * head + 4), slice(4 * (head // groups), 4 * (head // groups) + 4)
        weights = torch.softmax(q[..., own] @ k[..., shared].mT / 2, -1)
        outs.append(weights @ v[..., shared])
    return torch.cat(outs, -1) @ mixer.out.weight.T


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("tokens", [1, 5, 7])
def test_it_is_the_formula(tokens, kv_heads):
    mixer, x = made(kv_heads=kv_heads), torch.randn(2, tokens, 8, dtype=torch.float64, requires_grad=True)
    outs = mixer(x, FULL[tokens])[0], by_the_formula(mixer, x)
    torch.testing.assert_close(*outs, atol=1e-13, rtol=1e-13)
    gradients = (torch.autograd.grad(y.sin().sum(), [x, *mixer.parameters()]) for y in outs)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_a_summary_of_each_token_is_attention_itself():
    mixer, x = made(summaries=7), torch.randn(2, 7, 8, dtype=torch.float64)
    told = [part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (mixer.query(x), *mixer.key_value(x).chunk(2, -1))]
    exact = mixer.out(scaled_dot_product_attention(*told).transpose(1, 2).flatten(2))
    assert not torch.allclose(mixer(x, FULL[7])[0], exact)
    with torch.no_grad():
        mixer.summarise.copy_(torch.eye(7))
    torch.testing.assert_close(mixer(x, FULL[7])[0], exact, atol=1e-13, rtol=1e-13)


def test_padding_is_as_if_it_were_not_there():
    mixer, x = made(), torch.randn(2, 7, 8, dtype=torch.float64)
    real = torch.ones(2, 7).bool()
    real[1, :2] = False
    y, _ = mixer(x, Sinusoidal(width=8).at(Geometry.padded(real, causal=False)))
    alone, _ = mixer(x[1:, 2:], FULL[5])
    torch.testing.assert_close(y[1:, 2:], alone, atol=1e-13, rtol=1e-13)


def test_summaries_are_as_large_as_tokens_at_birth():
    mixer, x = Linformer(width=64, heads=1, max_length=500, summaries=50), torch.randn(1, 500, 64)
    assert 0.9 < (mixer.summarise @ x).std().item() < 1.1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"summaries": 0}, "summaries must be above zero; got 0"),
        (
            {"summaries": 8},
            "summaries must be at most max_length, since each is of some tokens; got 8 of 7; give fewer",
        ),
        ({"max_length": 0}, "max_length must be above zero"),
        ({"heads": 3}, "heads must divide width"),
        ({"dropout": 1.5}, r"dropout must lie in \[0, 1\)"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        made(**options)


def test_there_is_no_causal_form():
    with pytest.raises(ValueError, match="mixer 'linformer' has none"):
        made()(torch.randn(1, 3, 8).double(), NoPosition().at(Geometry.causal(3)))


def test_attention_weights_are_dropped_in_training_only():
    mixer, x = made(dropout=0.5), torch.randn(1, 7, 8, dtype=torch.float64)
    assert not torch.equal(mixer(x, FULL[7])[0], mixer(x, FULL[7])[0])
    mixer.eval()
    assert torch.equal(mixer(x, FULL[7])[0], mixer(x, FULL[7])[0])
