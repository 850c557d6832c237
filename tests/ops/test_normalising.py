import torch

from ordinate.ops.normalising import sigmoid, sinkhorn


def test_weights_are_those_of_their_definitions():
    scores = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    alone = sigmoid(scores, causal[None, None])
    seen = torch.arange(1, 7, dtype=torch.float64)[:, None]
    torch.testing.assert_close(alone, torch.where(causal, torch.sigmoid(scores - seen.log()), 0.0))
    torch.testing.assert_close(
        sinkhorn(scores, causal[None, None], 1), scores.masked_fill(~causal, -torch.inf).softmax(-1)
    )
    full = torch.ones_like(causal)[None, None]
    both = sinkhorn(scores, full, 101)
    torch.testing.assert_close(both.sum(-1), torch.ones(2, 3, 6, dtype=torch.float64))
    torch.testing.assert_close(both.sum(-2), torch.ones(2, 3, 6, dtype=torch.float64), atol=1e-9, rtol=0)
    by_hand = scores.exp()
    for division in range(5):
        by_hand = by_hand / by_hand.sum(-2 if division % 2 else -1, keepdim=True)
    torch.testing.assert_close(sinkhorn(scores, full, 5), by_hand)
