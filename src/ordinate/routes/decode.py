"""A few queries against many keys, as a decoder asks them."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.route import Call, Route, careful, weigh
from ordinate.shapes import Keys, Outputs, Values

# of more queries PyTorch's own attention makes blocks
QUERIES = 4
# numbers of a 16-bit cache that are widened at a time: they stay in the processor's cache
STEP = 2**19

Wide = Float[Tensor, "b g rows d"]
Scores = Float[Tensor, "b g rows j"]


class Decode(Route):
    """Two products and a softmax for a few queries, on CPUs: what a step of decoding is.

    The queries of the heads that share a key head are rows of one product, so that no key is repeated. 16-bit keys
    and values are widened piece by piece. A bias is asked for these queries only.
    """

    order = 100
    serves = frozenset({"cap", "sinks", "weights"})

    def refuses(self, call: Call) -> str | None:
        """Other devices, many queries, what needs each head's own keys or the weights, and dropout."""
        if call.q.device.type != "cpu":
            return "it is made for CPUs"
        if torch.compiler.is_compiling():
            return "torch.compile cannot look into it"
        queries, keys = call.where.shape
        if queries > QUERIES:
            return f"there are more than {QUERIES} queries"
        if keys <= queries:
            return "there are no more keys than queries"
        others = [hook for hook in call.at.scheme.hooks if hook in ("score", "content_bias", "carry")]
        if others:
            return f"the scheme's {others[0]} wants every head's keys or weights"
        return "it drops nothing" if call.dropout else None

    def run(self, call: Call) -> Outputs:
        """Scores, softmax, values, a few rows of each."""
        wide = torch.promote_types(call.q.dtype, torch.float32)
        rows = call.q.unflatten(1, (-1, call.groups)).flatten(2, 3).to(wide)
        scores = _scores(rows, call.k) * call.scale
        total = scores.detach().sum()
        scores = call.formula.bend(scores.unflatten(2, (call.groups, -1)).flatten(1, 2))
        scores = scores if call.at.bias is None else scores + call.at.bias
        weights = weigh(scores, call.where.visible, call.formula)
        out = _mixed(weights.unflatten(1, (-1, call.groups)).flatten(2, 3), call.v)
        # whatever is not finite shows in these few numbers; to look among keys and values would take as long again
        if not bool((total + out.detach().sum()).isfinite()):
            return careful(call)
        return out.unflatten(2, (call.groups, -1)).flatten(1, 2).to(call.q.dtype)

    def bytes(self, call: Call) -> int:
        """Scores and weights, and a piece of a 16-bit cache."""
        wide = max(call.q.element_size(), 4)
        piece = 0 if wide == call.q.element_size() else min(STEP, call.k.numel())
        return wide * (2 * call.pairs + piece)


def _scores(rows: Wide, k: Keys) -> Scores:
    return torch.cat([rows @ piece.to(rows.dtype).mT for piece in _pieces(k, rows.dtype)], -1)


def _mixed(weights: Scores, v: Values) -> Wide:
    pieces = _pieces(v, weights.dtype)
    shares = weights.split([piece.shape[2] for piece in pieces], -1)
    return torch.stack([share @ piece.to(share.dtype) for share, piece in zip(shares, pieces, strict=True)]).sum(0)


def _pieces(x: Keys, wide: torch.dtype) -> tuple[Tensor, ...]:
    size = x.shape[2] if x.dtype == wide else STEP // max(1, x.shape[0] * x.shape[1] * x.shape[3])
    return x.split(max(1, size), 2)
