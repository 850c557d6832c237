import pytest
import torch
from torch.nn.functional import normalize

from ordinate.ops.path_attention import PastKeys, path_attention
from ordinate.testing import assert_as_close
from ordinate.testing.assert_close import assert_max_close


def loop(q, k, v, w, rates):
    """The definition: each new token carries all keys on, then is compared with them."""
    keys, rows = k[:, :, :0], []
    for t in range(q.shape[2]):
        way, rate = w[:, :, t, None], rates[:, :, t, None, None]
        keys = keys - rate * (keys * way).sum(-1, keepdim=True) * way
        keys = torch.cat([keys, k[:, :, t, None]], 2)
        weights = (q[:, :, t, None] @ keys.mT).softmax(-1)
        rows.append(weights @ v[:, :, : t + 1])
    return torch.cat(rows, 2), keys


def ours(q, k, v, w, rates, past=None):
    past = past or PastKeys(k[:, :, :0], v[:, :, :0], torch.ones(len(q), 0, dtype=torch.bool))
    return path_attention(q, k, v, w, rates, past, torch.ones(len(q), q.shape[2], dtype=torch.bool))


def draw(tokens):
    q, k, v, w = (torch.randn(2, 3, tokens, 5) for _ in range(4))
    return q, k, v, normalize(w, dim=-1), 2 * torch.rand(2, 3, tokens)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tokens", [2, 7, 64, 65, 150])
def test_it_is_the_definition_gradients_too(tokens, dtype):
    leaves = [x.to(dtype).requires_grad_() for x in draw(tokens)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    results = []
    for function, inputs in ((ours, leaves), (loop, exact)):
        y, keys = function(*inputs)
        total = y.square().sum() + (keys * keys.cos()).sum()
        results.append([y, keys, *torch.autograd.grad(total, inputs)])
    for place, (one, other) in enumerate(zip(*results, strict=True)):
        if dtype == torch.float64:
            assert_as_close(one, other, other, what=f"result {place}")
        else:
            assert_max_close(one, other, 1e-5, f"result {place}")


def test_second_derivatives_are_those_of_the_definition():
    leaves = [x.double().requires_grad_() for x in draw(70)]
    found = []
    for function in (ours, loop):
        first = torch.autograd.grad(function(*leaves)[0].square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    for one, other in zip(*found, strict=True):
        assert_max_close(one, other, 1e-10, "second derivatives")


def test_in_pieces_it_is_the_same():
    inputs = [x.double() for x in draw(150)]
    whole, end = ours(*inputs)
    parts, past = [], None
    for piece in zip(*(x.split([70, 1, 79], 2) for x in inputs), strict=True):
        y, keys = ours(*piece, past)
        parts.append(y)
        tokens = keys.shape[2]
        past = PastKeys(keys, inputs[2][:, :, :tokens], torch.ones(2, tokens, dtype=torch.bool))
    torch.testing.assert_close(torch.cat(parts, 2), whole)
    torch.testing.assert_close(past.k, end)


def test_large_scores_do_not_overflow():
    q, k, v, w, rates = draw(130)
    y, _ = ours(100 * q, 100 * k, v, w, rates)
    exact, _ = loop(*(x.double() for x in (100 * q, 100 * k, v, w, rates)))
    assert_max_close(y, exact, 0.02, "large scores")
