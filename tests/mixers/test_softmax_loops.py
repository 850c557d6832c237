"""Softmax attention and the mixers that differ from it in projections or window, compared with loops over pairs."""

import math

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.shared_qk import SharedQK
from ordinate.mixers.softmax import Softmax
from ordinate.mixers.window import Window
from ordinate.schemes import Alibi, NoPosition

TOKENS, HEADS, WIDTH = 9, 4, 12
REAL = torch.tensor([[True] * TOKENS, [False] * 6 + [True] * 3])
# the geometry, and which document each token of each row is in; -1 is padding
PLACES = {
    "row": (lambda causal: Geometry.causal(TOKENS) if causal else Geometry.full(TOKENS), torch.zeros(2, TOKENS)),
    "packed": (
        lambda causal: Geometry.packed([1, 5, 3], causal=causal),
        torch.tensor([0, 1, 1, 1, 1, 1, 2, 2, 2]).expand(2, -1),
    ),
    "left": (lambda causal: Geometry.padded(REAL, causal=causal), REAL.long() - 1),
    "right": (lambda causal: Geometry.padded(REAL.flip(1), causal=causal), REAL.flip(1).long() - 1),
}
MIXERS = {
    "softmax": (lambda: Softmax(width=WIDTH, heads=HEADS), TOKENS),
    "grouped": (lambda: Softmax(width=WIDTH, heads=HEADS, kv_heads=2), TOKENS),
    "wide heads": (lambda: Softmax(width=WIDTH, heads=HEADS, head_width=5), TOKENS),
    "window": (lambda: Window(width=WIDTH, heads=HEADS, kv_heads=1, window=3), 3),
    "window of one": (lambda: Window(width=WIDTH, heads=HEADS, window=1), 1),
    "shared_qk": (lambda: SharedQK(width=WIDTH, heads=HEADS), TOKENS),
}


def projections(mixer, row):
    """Queries, keys and values of one row, for each head, token by token."""
    size, parts = mixer.head_width, row @ mixer.project.weight.T
    if isinstance(mixer, SharedQK):
        k, v = parts.chunk(2, 1)
        q = k
    else:
        q, k, v = parts.split(mixer.widths, 1)
    q, k, v = (part.unflatten(1, (-1, size)).transpose(0, 1) for part in (q, k, v))
    return q, *(part.repeat_interleave(HEADS // len(part), 0) for part in (k, v))


def loops(mixer, x, documents, causal, window, has_bias):
    """For each row, token and head, the mean of values weighted by e^score, over the pairs that see each other."""
    rows = []
    for row, document in zip(x, documents.tolist(), strict=True):
        q, k, v = projections(mixer, row)
        for i in range(TOKENS):
            sees = [j for j in range(TOKENS) if document[j] == document[i] >= 0 and abs(i - j) < window]
            sees, outs = [j for j in sees if j <= i or not causal], []
            for head in range(HEADS):
                # a token of padding sees nothing
                above, under = torch.zeros(v.shape[2], dtype=x.dtype), 0
                for j in sees:
                    score = (q[head, i] * k[head, j]).sum() / math.sqrt(mixer.head_width)
                    weight = torch.exp(score - has_bias * 2.0 ** (-2 * (head + 1)) * abs(i - j))
                    above, under = above + weight * v[head, j], under + weight
                outs.append(above / under if sees else above)
            rows.append(mixer.out.weight @ torch.cat(outs))
    return torch.stack(rows).view(x.shape)


@pytest.mark.covering(1)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MIXERS)
def test_it_is_the_mean_weighted_by_the_exponentials_of_scores(name, place, has_bias, causal):
    (make, window), (geometry, documents) = MIXERS[name], PLACES[place]
    mixer, x = make().double(), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    # slopes 2^-2, 2^-4, 2^-6 and 2^-8
    scheme = Alibi(heads=HEADS) if has_bias else NoPosition()
    y, _ = mixer(x, scheme.at(geometry(causal)))
    expected = loops(mixer, x, documents, causal, window, has_bias)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(y)
    for one, other in zip(
        *(torch.autograd.grad(out, leaves, asked, materialize_grads=True) for out in (y, expected)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
