"""Write the worked example of docs/questions/q_k_v.md, computed by the library: `python .ci/q_k_v.py`."""

from pathlib import Path

import torch
from generated_parts import Pages, write
from torch import Tensor

from ordinate import Geometry
from ordinate.mixers import Softmax
from ordinate.mixers._mixer import KVCache
from ordinate.schemes import NoPosition

PAGE = Path(__file__).parents[1] / "docs" / "questions" / "q_k_v.md"
TOKENS, CONTEXT = ("the", "cat", "sat"), ("le", "chat")
# rows of tokens; small whole numbers, so that a product can be checked by hand
X = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]]).double()
Y = torch.tensor([[2, 0, 0, 1], [0, 1, 1, 0]]).double()
# columns: queries of head 1 and 2, keys of head 1 and 2, values of head 1 and 2
W = torch.tensor(
    [
        [1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 2, 0],
        [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1],
        [0, -1, 0, 1, -1, 1, 1, 0, 2, 0, 0, 1],
        [1, 1, 1, -1, 1, 1, 0, -1, 0, 2, 1, 0],
    ]
).double()
LAST = 2


def mixer() -> Softmax:
    """Attention of width 4 with two heads and these weights; its output projection changes nothing."""
    made = Softmax(width=4, heads=2).double()
    with torch.no_grad():
        made.project.weight.copy_(W.T)
        made.out.weight.copy_(torch.eye(4))
    return made


def number(value: float) -> str:
    """Format a number: whole ones as they are."""
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.3f}"


def table(heads: list[str], rows: list[tuple[str, list[float]]]) -> str:
    """Format named rows of numbers."""
    lines = [f"| {' | '.join(['', *heads])} |", "|---|" + "---|" * len(heads)]
    return "\n".join(lines + [f"| {name} | {' | '.join(map(number, values))} |" for name, values in rows])


def matrix(heads: list[str], rows: Tensor, names: tuple[str, ...] = TOKENS) -> str:
    """Format a matrix with a name for each row."""
    return table(heads, list(zip(names, rows.tolist(), strict=True)))


def product() -> str:
    """X, W and their product."""
    columns = [f"{letter}{head}{channel}" for letter in "qkv" for head in (1, 2) for channel in "ab"]
    together = mixer().project(X[None])[0].detach()
    assert torch.equal(together, X @ W)
    weights = matrix(columns, W, ("w1", "w2", "w3", "w4"))
    return (
        f"X, a row for each token:\n\n{matrix(['x1', 'x2', 'x3', 'x4'], X)}\n\n"
        f"W, the columns of W_Q, W_K and W_V side by side; q1a is channel a of the query of head 1:\n\n{weights}\n\n"
        f"X W:\n\n{matrix(columns, together)}"
    )


def row(q: Tensor, k: Tensor, v: Tensor, names: tuple[str, ...]) -> str:
    """One row of attention of a head, step by step."""
    products, scores = q * k, (q * k).sum(-1)
    weights = torch.softmax(scores / 2**0.5, -1)
    steps = torch.cat([products, torch.stack([scores, scores / 2**0.5, weights], 1), weights[:, None] * v], 1)
    heads = ["qa · ka", "qb · kb", "q · k", "/ √2", "weight", "weight · va", "weight · vb"]
    rows = [(f"key {name}", values) for name, values in zip(names, steps.tolist(), strict=True)]
    total = [*[float("nan")] * 4, float(weights.sum()), *(weights @ v).tolist()]
    body = table(heads, rows)
    return body + "\n| **sum** | " + " | ".join("" if value != value else number(value) for value in total) + " |"


def attention() -> str:
    """The last token's row of head 1, and the output of the layer."""
    made = mixer()
    q, k, v = (part.detach() for part in made.project_qkv(X[None]))
    at = NoPosition().at(Geometry.causal(3))
    y = made.self_attention(X[None], at, None)[0][0].detach()
    own = torch.softmax(q[0, 0, LAST] @ k[0, 0].T / 2**0.5, -1) @ v[0, 0]
    assert torch.allclose(own, y[LAST, :2])
    return (
        f"{row(q[0, 0, LAST], k[0, 0], v[0, 0], TOKENS)}\n\n"
        f"The outputs of both heads side by side, under a causal mask; the last row begins with the sums above:\n\n"
        f"{matrix(['head 1a', 'head 1b', 'head 2a', 'head 2b'], y)}"
    )


def cached() -> str:
    """The last row once more, with the keys and values of the first two tokens from a cache."""
    made, scheme = mixer(), NoPosition()
    whole = made.self_attention(X[None], scheme.at(Geometry.causal(3)), None)[0][0, LAST]
    _, cache = made.self_attention(X[None, :2], scheme.at(Geometry.causal(2)), None)
    last, _ = made.self_attention(X[None, 2:], scheme.at(Geometry.causal(1, cached=2)), cache)
    assert torch.allclose(last[0, 0], whole)
    rows = [("all three at once", whole.tolist()), ("“sat” alone, with a cache", last[0, 0].tolist())]
    return table(["head 1a", "head 1b", "head 2a", "head 2b"], rows)


def cross() -> str:
    """The last token's row of head 1 over two rows of another sequence."""
    made = mixer()
    q = made.project_queries(X[None]).detach()
    k, v = (part.detach() for part in made.project_keys_values(Y[None]))
    y = made.cross_attention(X[None], KVCache(k, v), NoPosition().at(Geometry.cross(3, 2)))[0].detach()
    weights = torch.softmax(q[0, 0, LAST] @ k[0, 0].T / 2**0.5, -1)
    assert torch.allclose(weights @ v[0, 0], y[LAST, :2])
    return (
        f"Y, rows of the encoder:\n\n{matrix(['y1', 'y2', 'y3', 'y4'], Y, CONTEXT)}\n\n"
        f"{row(q[0, 0, LAST], k[0, 0], v[0, 0], CONTEXT)}"
    )


def exchanged() -> str:
    """Scores of head 1 with Q and K exchanged, and its weights under a causal mask."""
    q, k, _ = (part[0, 0].detach() for part in mixer().project_qkv(X[None]))
    heads, hidden = [f"key {name}" for name in TOKENS], ~Geometry.causal(3).visible[0]
    weights = [torch.softmax((s / 2**0.5).masked_fill(hidden, -torch.inf), -1) for s in (q @ k.T, k @ q.T)]
    merged = W[:, :2] @ W[:, 4:6].T
    assert torch.equal(X @ merged @ X.T, q @ k.T)
    return (
        f"Scores Q Kᵀ:\n\n{matrix(heads, q @ k.T)}\n\nScores with the two exchanged, K Qᵀ, its transpose:\n\n"
        f"{matrix(heads, k @ q.T)}\n\nWeights of Q Kᵀ under a causal mask:\n\n{matrix(heads, weights[0])}\n\n"
        f"Weights of K Qᵀ under a causal mask, not a transpose of those:\n\n{matrix(heads, weights[1])}\n\n"
        f"M = W_Q W_Kᵀ of head 1, for which X M Xᵀ are the same scores:\n\n"
        f"{matrix(['x1', 'x2', 'x3', 'x4'], merged, ('x1', 'x2', 'x3', 'x4'))}"
    )


def changed() -> str:
    """The last token's output of head 1 with other choices."""
    q, k, v = (part[0, 0].detach() for part in mixer().project_qkv(X[None]))
    scores, root = q[LAST] @ k.T, 2**0.5
    inside, none = torch.softmax(scores / root, -1), torch.softmax(scores, -1)
    rows = {
        "as above": (inside, inside @ v),
        "scale behind the softmax": (none / root, none @ v / root),
        "no scale": (none, none @ v),
        "V = K": (inside, inside @ k),
        "Q = K": (torch.softmax(k[LAST] @ k.T / root, -1), torch.softmax(k[LAST] @ k.T / root, -1) @ v),
    }
    heads = [*(f"weight of {name}" for name in TOKENS), "sum of weights", "output a", "output b"]
    return table(heads, [(name, [*w.tolist(), float(w.sum()), *y.tolist()]) for name, (w, y) in rows.items()])


def pages() -> Pages:
    """Return the page with its numbers."""
    makers = {"product": product, "attention": attention, "cached": cached, "cross": cross}
    makers |= {"exchanged": exchanged, "changed": changed}
    return {PAGE: {name: make() for name, make in makers.items()}}


if __name__ == "__main__":
    write(pages())
