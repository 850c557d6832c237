"""A few queries against many keys, as a decoder asks them."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need
from ordinate.native import build, decode
from ordinate.ops.blocks import blocks
from ordinate.route import Call, Route, careful, weigh
from ordinate.shapes import Bias, Keys, Lengths, Outputs, Values

# of more queries PyTorch's own attention makes blocks
QUERIES = 4
# numbers of a 16-bit cache that are widened at a time: they stay in the processor's cache
STEP = 2**19
# numbers of keys from which on it is worth building C++, once
MANY = 2**16
# a bias that falls less leaves weight to all keys: 2^-26 is e^-18
FALL = 18.0

Wide = Float[Tensor, "b g rows d"]
Scores = Float[Tensor, "b g rows j"]


class Decode(Route):
    """Two products and a softmax for a few queries, on CPUs: what a step of decoding is.

    The queries of the heads that share a key head are rows of one product, so that no key is repeated. 16-bit keys
    and values are widened piece by piece. A bias is asked for these queries only. Without gradients all is one pass
    over keys and values, in C++ where it can be built (`ordinate.native`).

    Keys that a window hides are not read. Neither are keys that a decaying bias makes weightless, where the longest
    key is known (`attend_cached`; what a layer remembers measures each key as it comes): to find it takes as long as
    the answer, so `attend`, which cannot know it, reads all. They are left out in chunks of 512 keys:

        sum over j of chunk c of exp(score_ij)  <=  512 exp(|q_i| max|k| |scale| + max of bias_ij over j of c)  =  U_c

    by Cauchy and Schwarz, while the newest chunk, which is read, has M_i = sum of exp(score_ij). Chunk c is left out
    if U_c <= 2^-26 M_i / (number of chunks) for each of its rows. All that is left out then weighs at most 2^-26 of
    the row, an eighth of float32's epsilon 2^-23 and a quarter of what one rounding changes: as in
    `ordinate.ops.reach`.

    A number that is not finite shows although it is left out, as it does by `tiles` and `native`: then the length of
    the longest key is not finite either, no U_c is below anything, and all is read.
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
        out = _natively(call) if _native(call) else _plainly(call)
        # whatever is not finite shows in these few numbers; to look among keys and values would take as long again
        return careful(call) if out is None else out

    def bytes(self, call: Call) -> int:
        """Scores and weights, and a piece of a 16-bit cache."""
        wide = max(call.q.element_size(), 4)
        piece = 0 if wide == call.q.element_size() else min(STEP, call.k.numel())
        return wide * (2 * call.pairs + piece)


def _native(call: Call) -> bool:
    tensors = call.q, call.k, call.v, call.at.bias, call.formula.sinks
    learns = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    usual = call.formula.cap is None and call.formula.weights is None
    fits = usual and call.q.dtype in (torch.float32, torch.bfloat16) and 0 not in call.q.shape
    return fits and not learns and call.k.numel() >= MANY and build.reason("decode") is None


def _natively(call: Call) -> Outputs | None:
    (block,) = blocks(call.where, QUERIES)
    sinks = None if call.formula.sinks is None else call.formula.sinks.detach().float()
    added = _added(call)
    longest = None if added is None else _longest(call, added)
    return decode.attend(call.q, call.k, call.v, added, sinks, scale=call.scale, seen=block.keys, longest=longest)


def _longest(call: Call, added: Bias) -> Lengths | None:
    """The length of the longest key of each head, if it is known and a bias falls so far that keys weigh nothing."""
    # the first layer looks, for all
    if call.longest is None or not call.at.once("fades", lambda: _fades(added)):
        return None
    lengths, heads = call.longest(), call.k.shape[:2]
    came = f"got {tuple(lengths.shape)} for {tuple(heads)}"
    need(lengths.shape == heads, "each head has a longest key", came, "give (batch, key heads) numbers")
    return lengths.detach().float()


def _fades(added: Bias) -> bool:
    return bool((added.amax(-1) - added.amin(-1) > FALL).any())


def _added(call: Call) -> Bias | None:
    """What is added to the scores: the bias, and -inf where a key is hidden."""
    mask = call.at.mask
    if mask is None or mask.is_floating_point():
        return None if mask is None else mask.detach().float()
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, float("-inf"))


def _plainly(call: Call) -> Outputs | None:
    wide = torch.promote_types(call.q.dtype, torch.float32)
    rows = call.q.unflatten(1, (-1, call.groups)).flatten(2, 3).to(wide)
    scores = _scores(rows, call.k) * call.scale
    total = scores.detach().sum()
    scores = call.formula.bend(scores.unflatten(2, (call.groups, -1)).flatten(1, 2))
    scores = scores if call.at.bias is None else scores + call.at.bias
    weights = weigh(scores, call.where.visible, call.formula)
    out = _mixed(weights.unflatten(1, (-1, call.groups)).flatten(2, 3), call.v)
    if not bool((total + out.detach().sum()).isfinite()):
        return None
    return out.unflatten(2, (call.groups, -1)).flatten(1, 2).to(call.q.dtype)


def _scores(rows: Wide, k: Keys) -> Scores:
    return torch.cat([rows @ piece.to(rows.dtype).mT for piece in _pieces(k, rows.dtype)], -1)


def _mixed(weights: Scores, v: Values) -> Wide:
    pieces = _pieces(v, weights.dtype)
    shares = weights.split([piece.shape[2] for piece in pieces], -1)
    return torch.stack([share @ piece.to(share.dtype) for share, piece in zip(shares, pieces, strict=True)]).sum(0)


def _pieces(x: Keys, wide: torch.dtype) -> tuple[Tensor, ...]:
    size = x.shape[2] if x.dtype == wide else STEP // max(1, x.shape[0] * x.shape[1] * x.shape[3])
    return x.split(max(1, size), 2)
