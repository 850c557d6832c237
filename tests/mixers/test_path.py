import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.path import PathAttention
from ordinate.schemes import NoPosition


def convolved(x, weight):
    taps = weight.shape[1]
    rows = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    y = torch.stack([(rows[t : t + taps] * weight.T).sum(0) for t in range(len(x))])
    return y * torch.sigmoid(y)


def paper(mixer, x):
    """Section 2 of the paper: the product of all transitions between each pair of tokens."""
    heads, width, tokens = mixer.heads, mixer.head_width, len(x)
    q, k, v = (part.view(tokens, heads, width) for part in (x @ mixer.project.weight.T).chunk(3, 1))
    w = convolved(x @ mixer.way_in.weight.T @ mixer.way_out.weight.T, mixer.convolution.weight)
    w = w.view(tokens, heads, width)
    w = w / torch.sqrt((w * w).sum(2, keepdim=True) + 1e-6)
    beta = 2 * torch.sigmoid(x @ mixer.rate.weight.T + mixer.rate.bias)
    moves = torch.eye(width).to(x) - beta[:, :, None, None] * w[:, :, :, None] * w[:, :, None]
    rows = []
    for i in range(tokens):
        scores, row = [], q[i][:, None]
        for j in range(i, -1, -1):
            scores.insert(0, (row[:, 0] * k[j]).sum(1) / width**0.5)
            row = row @ moves[j]
        weights = torch.stack(scores, 1).softmax(1)
        rows.append(torch.einsum("hj,jhd->hd", weights, v[: i + 1]))
    return torch.stack(rows).flatten(1) @ mixer.out.weight.T


def test_it_is_what_the_paper_writes_gradients_too():
    mixer = PathAttention(width=12, heads=3, rank=5).double()
    x = torch.randn(2, 17, 12, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(17)))
    theirs = torch.stack([paper(mixer, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 10, "heads": 4}, "heads must divide width; got width 10, heads 4"),
        ({"width": 8, "heads": 2, "rank": 0}, "rank must be above zero; got 0"),
        ({"width": 8, "heads": 2, "taps": 0}, "taps must be above zero; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        PathAttention(**sizes)
