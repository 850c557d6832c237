import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers.rwkv6 import Rwkv6
from ordinate.ops.native import build, scan
from ordinate.schemes import NoPosition


def stirred(**sizes):
    """Randomise parameters: the zero-initialised output projection would pass any test."""
    mixer = Rwkv6(**sizes)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return mixer.double()


def paper(mixer, x):
    """Reference recurrence of section 4 of the paper, for one row, token by token."""
    heads = mixer.heads
    before, state = torch.zeros_like(x[0]), x.new_zeros(heads, x.shape[1] // heads, x.shape[1] // heads)
    out = []
    for token in x:
        change = before - token
        hidden = torch.tanh((token + change * mixer.share) @ mixer.mix_in).view(5, -1)
        r, w, k, v, g = (token + change * (mixer.shares[i] + hidden[i] @ mixer.mix_out[i]) for i in range(5))
        r, k, v = (
            (weight @ y).view(heads, -1) for weight, y in ((mixer.receptance, r), (mixer.key, k), (mixer.value, v))
        )
        w = torch.exp(-torch.exp(mixer.decay + torch.tanh(w @ mixer.decay_in) @ mixer.decay_out)).view(heads, -1)
        written = torch.einsum("hi,hj->hij", k, v)
        y = torch.einsum("hi,hij->hj", r, state + mixer.bonus[:, :, None] * written)
        state = w[:, :, None] * state + written
        y = (y - y.mean(1, keepdim=True)) / torch.sqrt(y.var(1, keepdim=True, correction=0) + 64e-5)
        y = y.flatten() * mixer.norm_scale + mixer.norm_shift
        gate = mixer.gate @ g
        out.append(mixer.out @ (y * gate * torch.sigmoid(gate)))
        before = token
    return torch.stack(out)


def test_it_is_what_the_paper_writes_gradients_too():
    mixer = stirred(width=12, heads=3, layers=3, layer=1, mix_rank=3, decay_rank=5)
    x = torch.randn(2, 23, 12, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(23)))
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_from_both_sides_it_adds_two_readings():
    mixer, x = stirred(width=8, heads=2), torch.randn(1, 9, 8, dtype=torch.float64)
    causal, full = (NoPosition().at(form(9)) for form in (Geometry.causal, Geometry.full))
    both, state = mixer(x, full)
    torch.testing.assert_close(both, mixer(x, causal)[0] + mixer(x.flip(1), causal)[0].flip(1))
    assert state is None


def test_numbers_at_birth():
    width, layers = 6, 4
    for layer in range(layers):
        mixer, late, early = Rwkv6(width=width, heads=2, layers=layers, layer=layer), layer / 3, 1 - layer / 4
        for i in range(width):
            share, slow = 1 - (i / 6) ** early, 1 - (i / 6) ** (early / 2)
            assert mixer.share[i].item() == pytest.approx(share, abs=1e-5)
            expected = [slow, share, share, share - 0.3 * late, slow]
            assert mixer.shares[:, i].tolist() == pytest.approx(expected, abs=1e-5)
            assert mixer.decay[i].item() == pytest.approx(-6 + 5 * (i / 5) ** (0.7 + 1.3 * late), abs=1e-5)
            zigzag = 0.1 * ((i + 1) % 3 - 1)
            assert mixer.bonus.flatten()[i].item() == pytest.approx(late * (1 - i / 5) + zigzag, abs=1e-5)
        assert not any(weight.any() for weight in (mixer.mix_in, mixer.decay_in, mixer.out))
        torch.testing.assert_close(mixer.key @ mixer.key.T, 0.01 * torch.eye(width), atol=1e-6, rtol=0)


def test_a_model_keeps_the_initialisation_of_the_mixer():
    model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=2, mixer="rwkv6", scheme="none"))
    for block in model.blocks:
        assert not block.mixer.out.any()
        assert block.mixer.mix_out.abs().max() <= 0.01


def test_a_long_text_runs_in_cpp(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("recurrence") is not None:
        pytest.skip(build.unavailable_reason("recurrence"))
    mixer, x, at = stirred(width=64, heads=2).float(), torch.randn(2, 600, 64), NoPosition().at(Geometry.causal(600))
    assert scan.unsupported_reason("recurrence", torch.zeros(2, 2, 600, 32)) is None
    fast = mixer(x, at)[0]
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    torch.testing.assert_close(fast, mixer(x, at)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 10, "heads": 4}, "heads must divide width; got width 10, heads 4"),
        ({"width": 8, "heads": 2, "mix_rank": 0}, "mix_rank must be above zero; got 0"),
        ({"width": 8, "heads": 2, "decay_rank": 0}, "decay_rank must be above zero; got 0"),
        ({"width": 8, "heads": 2, "layers": 2, "layer": 2}, "layer must be below layers; got 2 of 2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        Rwkv6(**sizes)
