import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.dape import DapeAttention
from ordinate.schemes import NoPosition, Rope


def paper(mixer, scheme, x, where):
    """Section 3 of the paper, one pair of tokens after another."""
    prior, heads, width, tokens = mixer.adapted, mixer.adapted.log_p.numel(), mixer.head_width, len(x)
    q, k, v = (part.view(tokens, heads, width).transpose(0, 1) for part in (x @ mixer.project.weight.T).chunk(3, 1))
    pos = torch.arange(tokens)[None, :, None]
    q, k = scheme.encode_query(q[None], pos)[0], scheme.encode_key(k[None], pos)[0]
    seen, rows = where.visible[0], []
    for i in range(tokens):
        keys = [j for j in range(tokens) if seen[i, j]]
        scores = []
        for j in keys:
            score = (q[:, i] * k[:, j]).sum(1) / width**0.5
            bias = -prior.log_p.exp() * torch.log(1 + prior.log_a.exp() * abs(i - j))
            hidden = prior.inner.weight @ torch.cat([score, bias]) + prior.inner.bias
            hidden = torch.where(hidden > 0, hidden, 0.01 * hidden)
            scores.append(score + bias + prior.outer.weight @ hidden + prior.outer.bias)
        weights = torch.stack(scores, 1).softmax(1)
        rows.append((weights[:, :, None] * v[:, keys]).sum(1).flatten())
    return torch.stack(rows) @ mixer.out.weight.T


@pytest.mark.parametrize("where", [Geometry.causal(9), Geometry.full(9)], ids=["causal", "full"])
@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=4)], ids=["none", "rope"])
def test_it_is_what_the_paper_writes_gradients_too(scheme, where):
    mixer = DapeAttention(width=12, heads=3, hidden=5).double()
    x = torch.randn(2, 9, 12, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, scheme.at(where))
    theirs = torch.stack([paper(mixer, scheme, row, where) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_the_scores_of_one_head_change_the_weights_of_another():
    mixer, x = DapeAttention(width=8, heads=2), torch.randn(1, 5, 8)
    at = NoPosition().at(Geometry.causal(5))
    q, k, v = mixer.project_qkv(x)
    other = q.clone()
    other[:, 1] *= 2
    one, two = (mixer.attention(part, k, v, at)[:, 0] for part in (q, other))
    assert (one - two).abs().max() > 1e-5


def test_a_hidden_layer_of_no_width_is_refused():
    with pytest.raises(ValueError, match="hidden must be above zero; got 0"):
        DapeAttention(width=8, heads=2, hidden=0)
