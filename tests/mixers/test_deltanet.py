import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.deltanet import DeltaNet
from ordinate.schemes import NoPosition


def convolved(x, weight):
    """The causal convolution of each column over the last tokens, then SiLU."""
    taps = weight.shape[1]
    rows = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    y = torch.stack([(rows[t : t + taps] * weight.T).sum(0) for t in range(len(x))])
    return y * torch.sigmoid(y)


def paper(mixer, x, twice=1):
    """The delta rule of section 2.2 and its layer, token by token; states have a row per value channel."""
    heads, keys = mixer.sizes.heads, mixer.sizes.key_width
    state = x.new_zeros(heads, mixer.sizes.value_width, keys)
    rows = convolved(x @ mixer.project.weight.T, mixer.convolution.weight)
    out = []
    for token, row in zip(x, rows, strict=True):
        q, k, v = (part.view(heads, -1) for part in row.split(mixer.widths))
        q, k = (y / torch.sqrt((y * y).sum(1, keepdim=True) + 1e-6) for y in (q, k))
        beta = twice * torch.sigmoid(mixer.rate.weight @ token)
        moves = torch.eye(keys).to(x) - beta[:, None, None] * k[:, :, None] * k[:, None]
        state = state @ moves + beta[:, None, None] * v[:, :, None] * k[:, None]
        y = (state @ q[:, :, None])[..., 0] / keys**0.5
        y = y / torch.sqrt((y * y).mean(1, keepdim=True) + 1e-5) * mixer.norm_scale
        y = y.flatten()
        if mixer.gate is not None:
            gate = mixer.gate.weight @ token
            y = y * gate * torch.sigmoid(gate)
        out.append(mixer.out.weight @ y)
    return torch.stack(out)


@pytest.mark.parametrize(
    ("options", "twice"), [({}, 1), ({"gate": True, "negative_eigenvalues": True, "taps": 2}, 2)]
)
def test_it_is_what_the_paper_writes_gradients_too(options, twice):
    mixer = DeltaNet(width=12, heads=3, **options).double()
    x = torch.randn(2, 23, mixer.sizes.width, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(23)))
    theirs = torch.stack([paper(mixer, row, twice) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_from_both_sides_it_adds_two_readings():
    mixer, x = DeltaNet(width=8, heads=2).double(), torch.randn(1, 9, 8, dtype=torch.float64)
    causal, full = (NoPosition().at(form(9)) for form in (Geometry.causal, Geometry.full))
    both, state = mixer(x, full)
    torch.testing.assert_close(both, mixer(x, causal)[0] + mixer(x.flip(1), causal)[0].flip(1))
    assert state is None


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 10, "heads": 4}, "heads must divide width; got width 10, heads 4"),
        ({"width": 8, "heads": 2, "taps": 0}, "taps must be above zero; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        DeltaNet(**sizes)
