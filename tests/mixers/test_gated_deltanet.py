import pytest
import torch

from ordinate import Geometry
from ordinate.mixers import GatedDeltaOptions
from ordinate.mixers.gated_deltanet import GatedDeltaNet
from ordinate.ops.native import build
from ordinate.schemes import NoPosition


def convolved(x, weight):
    """The causal convolution of each column over the last tokens, then SiLU."""
    taps = weight.shape[1]
    rows = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    y = torch.stack([(rows[t : t + taps] * weight.T).sum(0) for t in range(len(x))])
    return y * torch.sigmoid(y)


def paper(mixer, x, twice=1):
    """Equation 10 of the paper and its layer, token by token; states have a row per value channel."""
    heads, keys = mixer.sizes.heads, mixer.sizes.key_width
    state = x.new_zeros(heads, mixer.sizes.value_width, keys)
    rows = convolved(x @ mixer.project.weight.T, mixer.convolution.weight)
    out = []
    for token, row in zip(x, rows, strict=True):
        q, k, v = (
            part.view(-1, size)
            for part, size in zip(row.split(mixer.widths), (keys, keys, mixer.sizes.value_width), strict=True)
        )
        q, k = (part.repeat_interleave(heads // len(part), 0) for part in (q, k))
        q, k = (y / torch.sqrt((y * y).sum(1, keepdim=True) + 1e-6) for y in (q, k))
        beta = twice * torch.sigmoid(mixer.rate.weight @ token)
        step = torch.log1p(torch.exp(mixer.step.weight @ token + mixer.decay.bias))
        alpha = torch.exp(-torch.exp(mixer.decay.log_rate) * step)
        moves = torch.eye(keys).to(x) - beta[:, None, None] * k[:, :, None] * k[:, None]
        state = alpha[:, None, None] * state @ moves + beta[:, None, None] * v[:, :, None] * k[:, None]
        y = (state @ q[:, :, None])[..., 0] / keys**0.5
        y = y / torch.sqrt((y * y).mean(1, keepdim=True) + mixer.sizes.norm_eps) * mixer.norm_scale
        y = y.flatten()
        if mixer.gate is not None:
            gate = mixer.gate.weight @ token
            y = y * gate * torch.sigmoid(gate)
        out.append(mixer.out.weight @ y)
    return torch.stack(out)


@pytest.mark.parametrize(
    ("mixer", "twice"),
    [
        (lambda: GatedDeltaNet(width=12, heads=3), 1),
        (lambda: GatedDeltaNet(width=12, heads=4, variant=GatedDeltaOptions(2, 0.1)), 1),
        (
            lambda: GatedDeltaNet(
                width=10, heads=3, key_width=5, value_ratio=1, gate=False, negative_eigenvalues=True
            ),
            2,
        ),
    ],
)
def test_it_is_what_the_paper_writes_gradients_too(mixer, twice):
    mixer = mixer().double()
    x = torch.randn(2, 23, mixer.sizes.width, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(23)))
    theirs = torch.stack([paper(mixer, row, twice) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_published_sizes_and_initial_decays():
    mixer = GatedDeltaNet(width=2048, heads=6)
    assert (mixer.sizes.key_width, mixer.sizes.value_width) == (256, 512)
    # six times the square of the width, and some small parts
    assert 6 * 2048**2 < sum(x.numel() for x in mixer.parameters()) < 6.05 * 2048**2
    decay = GatedDeltaNet(width=256, heads=128).decay
    steps, rates = torch.nn.functional.softplus(decay.bias), decay.log_rate.exp()
    assert 0.00099 < steps.min() < 0.002 < 0.05 < steps.max() < 0.1001
    assert 0 < rates.min() < 2 < 14 < rates.max() < 16


@pytest.mark.extended
def test_a_long_text_runs_in_cpp(monkeypatch):
    monkeypatch.delenv(build.ENV_VARIABLE)
    if build.unavailable_reason("recurrence") is not None:
        pytest.skip(build.unavailable_reason("recurrence"))
    mixer, at = GatedDeltaNet(width=64, heads=2), NoPosition().at(Geometry.causal(600))
    x = torch.randn(2, 600, 64)
    fast = mixer(x, at)[0]
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    torch.testing.assert_close(fast, mixer(x, at)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 8, "heads": 2, "key_width": 0}, "key_width must be above zero; got 0"),
        ({"width": 8, "heads": 2, "value_ratio": 0}, "value_ratio must be above zero; got 0"),
        ({"width": 8, "heads": 0}, "heads must be above zero; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        GatedDeltaNet(**sizes)
