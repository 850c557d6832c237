import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers.rwkv7 import Rwkv7
from ordinate.ops.native import build
from ordinate.schemes import NoPosition


def stirred(**sizes):
    """Randomise parameters: the zero-initialised output projection would pass any test."""
    mixer = Rwkv7(**sizes)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return mixer.double()


def paper(mixer, x):
    """Reference recurrence of section 4 of the paper, token by token; states have a row per value channel."""
    heads = mixer.heads
    before, state = torch.zeros_like(x[0]), x.new_zeros(heads, x.shape[1] // heads, x.shape[1] // heads)
    out = []
    for token in x:
        r, w, k, v, a, g = (token + (before - token) * share for share in mixer.shares)
        r, k, v = (weight @ y for weight, y in ((mixer.receptance, r), (mixer.key, k), (mixer.value, v)))
        w = torch.exp(
            -(torch.e**-0.5) * torch.sigmoid(mixer.decay + torch.tanh(w @ mixer.decay_in) @ mixer.decay_out)
        )
        a = torch.sigmoid(mixer.rate + a @ mixer.rate_in @ mixer.rate_out)
        g = torch.sigmoid(g @ mixer.gate_in) @ mixer.gate_out
        erased = (k * mixer.erased).view(heads, -1)
        erased = erased / erased.norm(dim=1, keepdim=True)
        k = k * (1 + (a - 1) * mixer.replaced)
        r, k, v, w, a = (y.view(heads, -1) for y in (r, k, v, w, a))
        moves = torch.diag_embed(w) - torch.einsum("hi,hj->hij", erased, a * erased)
        state = state @ moves + torch.einsum("hi,hj->hij", v, k)
        y = torch.einsum("hij,hj->hi", state, r)
        y = (y - y.mean(1, keepdim=True)) / torch.sqrt(y.var(1, keepdim=True, correction=0) + 64e-5)
        y = y.flatten() * mixer.norm_scale + mixer.norm_shift
        own = (r * k * mixer.bonus).sum(1, keepdim=True) * v
        out.append(mixer.out @ ((y + own.flatten()) * g))
        before = token
    return torch.stack(out)


def test_it_is_what_the_paper_writes_gradients_too():
    mixer = stirred(width=12, heads=3, layers=3, layer=1, decay_rank=3, rate_rank=4, gate_rank=5)
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
    width, heads, layers = 6, 2, 4
    for layer in range(layers):
        mixer, late, early = Rwkv7(width=width, heads=heads, layers=layers, layer=layer), layer / 3, 1 - layer / 4
        for i in range(width):
            within = i % 3 - 1
            expected = [1 - (i / 6) ** (speed * early) for speed in (0.2, 0.9, 0.7, 0.7, 0.9, 0.2)]
            assert mixer.shares[:, i].tolist() == pytest.approx(expected, abs=1e-5)
            pace = -6 + 6 * (i / 5) ** (1 + late**0.3) + 0.5 + 2.5 * within * abs(within)
            assert mixer.decay[i].item() == pytest.approx(pace, abs=1e-5)
            rate = -0.19 + 0.3 * within * abs(within) + 0.4 * (i / 5 - 0.5)
            assert mixer.rate[i].item() == pytest.approx(rate, abs=1e-5)
            assert mixer.erased[i].item() == pytest.approx(0.71 - 0.1 * (i / 5 - 0.5), abs=1e-5)
        assert not any(weight.any() for weight in (mixer.decay_in, mixer.rate_in, mixer.gate_in, mixer.out))
        assert mixer.key.abs().max() <= 0.05 / width**0.5 < mixer.value.abs().max() <= 0.5 / width**0.5


def test_ranks_are_those_that_the_authors_propose():
    mixer = Rwkv7(width=768, heads=12)
    assert [weight.shape[1] for weight in (mixer.decay_in, mixer.rate_in, mixer.gate_in)] == [64, 64, 128]


def test_a_model_keeps_the_initialisation_of_the_mixer():
    model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=2, mixer="rwkv7", scheme="none"))
    for block in model.blocks:
        assert not block.mixer.out.any()
        assert block.mixer.key.abs().max() <= 0.05 / 4


def test_a_long_text_runs_in_cpp(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("recurrence") is not None:
        pytest.skip(build.unavailable_reason("recurrence"))
    mixer, x, at = stirred(width=64, heads=2).float(), torch.randn(2, 600, 64), NoPosition().at(Geometry.causal(600))
    fast = mixer(x, at)[0]
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    torch.testing.assert_close(fast, mixer(x, at)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 10, "heads": 4}, "heads must divide width; got width 10, heads 4"),
        ({"width": 8, "heads": 2, "decay_rank": 0}, "decay_rank must be above zero; got 0"),
        ({"width": 8, "heads": 2, "rate_rank": 0}, "rate_rank must be above zero; got 0"),
        ({"width": 8, "heads": 2, "gate_rank": 0}, "gate_rank must be above zero; got 0"),
        ({"width": 8, "heads": 2, "layers": 2, "layer": 2}, "layer must be below layers; got 2 of 2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        Rwkv7(**sizes)
