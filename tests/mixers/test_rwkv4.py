import math

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers.rwkv4 import Rwkv4
from ordinate.ops.native import build, scan
from ordinate.schemes import NoPosition


def stirred(**sizes):
    """Randomise parameters: the zero-initialised output projection would pass any test."""
    mixer = Rwkv4(**sizes)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return mixer.double()


def paper(mixer, x):
    """Reference recurrence of section 4 of the paper, for one row, token by token."""
    before, above, under = torch.zeros_like(x[0]), torch.zeros_like(x[0]), torch.zeros_like(x[0])
    pace, out = torch.exp(-torch.exp(mixer.decay)), []
    for token in x:
        mixed = [
            share * token + (1 - share) * before for share in (mixer.gate_share, mixer.key_share, mixer.value_share)
        ]
        r, k, v = (weight @ part for weight, part in zip((mixer.gate, mixer.key, mixer.value), mixed, strict=True))
        own = torch.exp(mixer.bonus + k)
        out.append(mixer.out @ (torch.sigmoid(r) * (above + own * v) / (under + own)))
        above, under, before = pace * above + torch.exp(k) * v, pace * under + torch.exp(k), token
    return torch.stack(out)


def test_it_is_what_the_paper_writes_gradients_too():
    mixer, x = stirred(width=12, layers=3, layer=1), torch.randn(2, 33, 12, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(33)))
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    leaves = [x, *mixer.parameters()]
    asked = torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_from_both_sides_it_adds_two_readings():
    mixer, x = stirred(width=8), torch.randn(1, 9, 8, dtype=torch.float64)
    causal, full = (NoPosition().at(form(9)) for form in (Geometry.causal, Geometry.full))
    both, state = mixer(x, full)
    torch.testing.assert_close(both, mixer(x, causal)[0] + mixer(x.flip(1), causal)[0].flip(1))
    assert state is None


def test_numbers_at_birth():
    layers, width = 4, 6
    for layer in range(layers):
        mixer, late, early = Rwkv4(width=width, layers=layers, layer=layer), layer / 3, 1 - layer / 4
        for i in range(width):
            assert mixer.decay[i].item() == pytest.approx(-5 + 8 * (i / 5) ** (0.7 + 1.3 * late), abs=1e-5)
            assert mixer.bonus[i].item() == pytest.approx(math.log(0.3) + 0.5 * ((i + 1) % 3 - 1), abs=1e-5)
            assert mixer.key_share[i].item() == pytest.approx((i / 6) ** early, abs=1e-5)
            assert mixer.value_share[i].item() == pytest.approx((i / 6) ** early + 0.3 * late, abs=1e-5)
            assert mixer.gate_share[i].item() == pytest.approx((i / 6) ** (early / 2), abs=1e-5)
        assert not any(weight.any() for weight in (mixer.key, mixer.gate, mixer.out))
        torch.testing.assert_close(mixer.value @ mixer.value.T, torch.eye(width), atol=1e-5, rtol=0)


def test_a_model_keeps_the_initialisation_of_the_mixer():
    model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=2, mixer="rwkv4", scheme="none"))
    for block in model.blocks:
        assert not block.mixer.key.any()
        torch.testing.assert_close(block.mixer.value @ block.mixer.value.T, torch.eye(16), atol=1e-5, rtol=0)
    assert model.blocks[0].mixer.decay[1] != model.blocks[1].mixer.decay[1]


def test_a_model_of_one_layer_and_of_one_column():
    mixer = Rwkv4(width=1)
    assert all(parameter.isfinite().all() for parameter in mixer.parameters())
    y, _ = mixer(torch.randn(1, 3, 1), NoPosition().at(Geometry.causal(3)))
    assert y.isfinite().all()


def test_a_long_text_runs_in_cpp(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("wkv") is not None:
        pytest.skip(build.unavailable_reason("wkv"))
    mixer, x, at = stirred(width=64).float(), torch.randn(2, 600, 64), NoPosition().at(Geometry.causal(600))
    assert scan.unsupported_reason("wkv", x) is None
    fast = mixer(x, at)[0]
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    assert scan.unsupported_reason("wkv", x) == "the C++ kernels are disabled (ORDINATE_NATIVE)"
    torch.testing.assert_close(fast, mixer(x, at)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 0}, "width must be above zero; got 0"),
        ({"width": 8, "layers": 2, "layer": 2}, "layer must be below layers; got 2 of 2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        Rwkv4(**sizes)
