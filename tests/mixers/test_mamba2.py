import pytest
import torch
from torch.nn.functional import softplus

from ordinate import Geometry
from ordinate.mixers import Mamba2Options
from ordinate.mixers.mamba2 import Mamba2
from ordinate.schemes import NoPosition

SCALES = (0.5, -0.7, 1.3, 2.0, 0.9)


def silu(x):
    return x * torch.sigmoid(x)


def convolved(x, weight, bias):
    taps = weight.shape[1]
    rows = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    return silu(torch.stack([(rows[t : t + taps] * weight.T).sum(0) for t in range(len(x))]) + bias)


def paper(mixer, u):
    """The recurrence of section 3 of the paper and its block of section 7, token by token."""
    inner, heads, groups = mixer.widths[0], mixer.heads, mixer.groups
    states, channels = mixer.widths[1] // groups, inner // heads
    variant, zero = mixer.variant, u.new_zeros(())
    given, shift, end = (
        zero if bias is None else bias for bias in (mixer.project.bias, mixer.convolution.bias, mixer.out.bias)
    )
    parts = (u @ mixer.project.weight.T + given).split([inner, *mixer.widths, heads], 1)
    z, *mixed, steps = (part * factor for part, factor in zip(parts, variant.scales, strict=True))
    mixed = torch.cat(mixed, 1)
    rows = convolved(mixed, mixer.convolution.weight, shift)
    rates, state = torch.exp(mixer.decay.log_rate), u.new_zeros(heads, channels, states)
    out = []
    for row, gate, step in zip(rows, z, steps, strict=True):
        x, b, c = row.split(mixer.widths)
        x, b, c = x.view(heads, channels), b.view(groups, states), c.view(groups, states)
        b, c = (part.repeat_interleave(heads // groups, 0) for part in (b, c))
        step = softplus(step + mixer.decay.bias).clamp(variant.least_step, variant.largest_step)
        state = torch.exp(-rates * step)[:, None, None] * state + step[:, None, None] * x[:, :, None] * b[:, None]
        y = (state * c[:, None]).sum(2) + mixer.skip[:, None] * x
        y = y.flatten() if variant.norm_before_gate else y.flatten() * silu(gate)
        if variant.norm:
            y = y.view(groups, -1)
            y = (y / torch.sqrt((y * y).mean(1, keepdim=True) + variant.norm_eps)).flatten() * mixer.norm_scale
        y = y * silu(gate) if variant.norm_before_gate else y
        out.append(variant.out_scale * (mixer.out.weight @ y + end))
    return torch.stack(out)


@pytest.mark.parametrize(
    "options",
    [
        {"head_dim": 3, "states": 5},
        {"head_dim": 4, "states": 3, "groups": 2, "taps": 2},
        {"head_dim": 4, "states": 3, "variant": Mamba2Options(True, False, 0.1, 0.01, 0.05)},
        {"head_dim": 4, "states": 3, "groups": 2, "variant": Mamba2Options(norm_before_gate=True)},
        {"head_dim": 4, "states": 3, "variant": Mamba2Options(True, norm=False, out_scale=0.7, scales=SCALES)},
    ],
)
def test_it_is_what_the_paper_writes_gradients_too(options):
    mixer = Mamba2(width=6 if options["head_dim"] == 3 else 8, **options).double()
    x = torch.randn(2, 23, mixer.width, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(23)))
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("variant", [Mamba2Options(), Mamba2Options(bias=True)])
def test_padding_enters_neither_the_state_nor_the_convolution_by_a_bias(variant):
    mixer, x = Mamba2(width=6, states=5, variant=variant).double(), torch.randn(1, 7, 6, dtype=torch.float64)
    real = torch.tensor([[False, False, False, True, True, True, True]])
    padded, _ = mixer(x, NoPosition().at(Geometry.padded(real)))
    alone, _ = mixer(x[:, 3:], NoPosition().at(Geometry.causal(4)))
    torch.testing.assert_close(padded[:, 3:], alone)


def test_published_sizes_and_initial_decays():
    mixer = Mamba2(width=768)
    assert (mixer.heads, mixer.project.out_features) == (24, 2 * 1536 + 2 * 128 + 24)
    assert Mamba2(width=50).heads == 2
    decay = Mamba2(width=128, head_dim=2).decay
    steps, rates = softplus(decay.bias), decay.log_rate.exp()
    assert 0.00099 < steps.min() < 0.002 < 0.05 < steps.max() < 0.1001
    assert 1 <= rates.min() < 3 < 14 < rates.max() < 16.001
    assert (mixer.skip == 1).all()


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 8, "head_dim": 3}, "head_dim must divide expand x width; got 3 and 16"),
        ({"width": 8, "head_dim": 3, "variant": Mamba2Options(inner=20)}, "must divide variant.inner; got 3 and 20"),
        ({"width": 8, "expand": 3, "variant": Mamba2Options(inner=20)}, "expand has no effect beside variant.inner"),
        ({"width": 8, "head_dim": 4, "groups": 3}, "groups must divide the heads; got 3 and 4"),
        ({"width": 8, "states": 0}, "states must be above zero; got 0"),
        ({"width": 8, "taps": 0}, "taps must be above zero; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        Mamba2(**sizes)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"norm": False, "norm_before_gate": True}, "norm_before_gate and norm_eps have an effect only with norm"),
        ({"norm": False, "norm_eps": 0.1}, "norm_before_gate and norm_eps have an effect only with norm"),
        ({"scales": (1.0, 2.0)}, "scales must be five finite numbers"),
        ({"scales": (1.0, 2.0, 1.0, float("inf"), 1.0)}, "scales must be five finite numbers"),
        ({"out_scale": float("nan")}, "scales must be five finite numbers, and out_scale one"),
    ],
)
def test_options_of_a_norm_that_is_not_there_and_factors_that_are_none_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        Mamba2Options(**options)
