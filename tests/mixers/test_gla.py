import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.gla import GatedLinearAttention
from ordinate.schemes import NoPosition


def paper(mixer, x):
    """Equations 3 and 4 of the paper and its layer of section 4.4, token by token."""
    heads = mixer.heads
    state = x.new_zeros(heads, mixer.widths[0] // heads, mixer.widths[2] // heads)
    out = []
    for token in x:
        q, k, v = (part.view(heads, -1) for part in (mixer.project.weight @ token).split(mixer.widths))
        logits = mixer.decay_out.weight @ (mixer.decay_in.weight @ token) + mixer.decay_out.bias
        alpha = torch.sigmoid(logits).view(heads, -1) ** (1 / mixer.temperature)
        state = alpha[:, :, None] * state + k[:, :, None] * v[:, None]
        y = (q[:, :, None] * state).sum(1) / q.shape[1] ** 0.5
        y = y / torch.sqrt((y * y).mean(1, keepdim=True) + 1e-5) * mixer.norm_scale
        gate = mixer.gate.weight @ token
        out.append(mixer.out.weight @ (y.flatten() * gate * torch.sigmoid(gate)))
    return torch.stack(out)


def test_it_is_what_the_paper_writes_gradients_too():
    mixer = GatedLinearAttention(width=12, heads=3, decay_rank=5, temperature=3.0).double()
    x = torch.randn(2, 23, 12, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(23)))
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_it_has_as_many_parameters_as_softmax_attention_and_the_decay():
    # 4 width^2, the low-rank decay with its bias, and the norm
    assert sum(x.numel() for x in GatedLinearAttention(width=64, heads=4).parameters()) == (
        4 * 64**2 + 16 * 64 + 16 * 32 + 32 + 16
    )


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 10, "heads": 4}, "heads must divide width; got width 10, heads 4"),
        ({"width": 12, "heads": 4}, "gla needs an even number of channels of a head: .* got 3"),
        ({"width": 8, "heads": 2, "decay_rank": 0}, "decay_rank must be above zero; got 0"),
        ({"width": 8, "heads": 2, "temperature": 0.0}, "temperature must be above zero; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        GatedLinearAttention(**sizes)
