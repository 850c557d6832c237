"""Decoding step: a few queries against a long KV cache, on CPUs."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, attention_weights, reference_attention
from ordinate.attention._workspace import workspace_along
from ordinate.core.checks import need
from ordinate.core.devices import on_cpu
from ordinate.core.records import changed
from ordinate.core.shapes import Bias, KeyNorms, Keys, Outputs, Values
from ordinate.ops.blocks import query_blocks
from ordinate.ops.native import build, decode
from ordinate.schemes._held import apart

# with more queries PyTorch's attention works in blocks
MAX_QUERIES = 4
# elements of a 16-bit cache converted to float32 at a time, so that they stay in the processor's cache
CONVERTED_ELEMENTS = 2**19
# size of k (elements) from which the one-time C++ build is worthwhile
MIN_CPP_ELEMENTS = 2**16
# a bias that spans less than this leaves no key negligible: 2^-26 is e^-18
MIN_BIAS_RANGE = 18.0

Wide = Float[Tensor, "b g rows d"]
Scores = Float[Tensor, "b g rows j"]


class Decode(Backend):
    """Decoding step: attention of at most 4 queries over a KV cache, on CPUs.

    The queries of heads that share a key head (grouped-query attention) are rows of one matrix product, so keys are
    not repeated. 16-bit keys and values are converted to float32 piece by piece. The bias is computed for these
    queries only. Without gradients it is one pass over keys and values, in C++ where that can be built
    (`ordinate.ops.native`).

    Keys outside the window are not read. Nor are keys whose weight a decaying bias makes negligible, if the largest
    key norm is known (`attend_cached`; the KV cache of a layer tracks it as keys are appended). Computing it would
    take as long as attention itself, so `attend`, which does not know it, reads all keys. Keys are skipped in chunks
    of 512:

        sum over j of chunk c of exp(score_ij)  <=  512 exp(|q_i| max|k| |scale| + max of bias_ij over j of c)  =  U_c

    by the Cauchy-Schwarz inequality, while the newest chunk, which is read, has M_i = sum of exp(score_ij). Chunk c
    is skipped if U_c <= 2^-26 M_i / (number of chunks) for each of its rows. All skipped keys together then weigh at
    most 2^-26 of the row, an eighth of float32's epsilon 2^-23 and a quarter of the largest change by one rounding,
    as in `ordinate.ops.decay_cutoff`.

    NaN and infinity in skipped keys still show, as in `offset_bias` and `native`: the largest key norm is then not
    finite either, so no U_c is below the bound, and all keys are read.
    """

    priority = 100
    supported_options = frozenset({"softcap", "sinks", "normaliser"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, more queries, hooks that need each head's keys or weights, and dropout."""
        if not on_cpu(call.q):
            return "only CPUs are supported"
        if torch.compiler.is_compiling():
            return "torch.compile cannot trace it"
        queries, keys = call.where.shape
        if queries > MAX_QUERIES:
            return f"there are more than {MAX_QUERIES} queries"
        if keys <= queries:
            return "there are no more keys than queries"
        others = [hook for hook in call.at.scheme.hooks if hook in ("score", "content_bias", "value_bias")]
        if others:
            return f"the scheme's {others[0]} needs every head's keys or weights"
        return "dropout is not supported" if call.dropout else None

    def run(self, call: AttentionCall) -> Outputs:
        """Compute attention in C++ or PyTorch; non-finite results are recomputed by the reference formula."""
        out = _in_cpp(call) if _cpp_supported(call) else _in_torch(call)
        # NaN and infinity show in the few scores and outputs; reading keys and values again would double the time
        return reference_attention(call) if out is None else out

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Bias and mask with what the scheme needs to make them; in C++ a sum of values for each 512 keys and row;
        in PyTorch scores, weights and one converted piece of a 16-bit cache.

        Counted while the step is computed once.
        """
        step = changed(call, at=apart(call.at))
        in_cpp = _cpp_supported(call)
        compute = _in_cpp if in_cpp else _in_torch

        def run() -> Outputs:
            out = compute(step)
            return reference_attention(step) if out is None else out

        held = workspace_along(lambda _: run, 1, (1, 1), call.where.shape[0], call)
        chunks = -(-call.where.shape[1] // decode.CHUNK)
        return held + (chunks * call.q.shape[:3].numel() * 4 * call.v.shape[3] if in_cpp else 0)


def _cpp_supported(call: AttentionCall) -> bool:
    tensors = call.q, call.k, call.v, call.at.bias, call.score_options.sinks
    learns = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    standard = call.score_options.softcap is None and call.score_options.normaliser is None
    fits = standard and call.q.dtype in (torch.float32, torch.bfloat16) and 0 not in call.q.shape
    return fits and not learns and call.k.numel() >= MIN_CPP_ELEMENTS and build.unavailable_reason("decode") is None


def _in_cpp(call: AttentionCall) -> Outputs | None:
    """Compute attention in C++; None if a result is not finite."""
    (block,) = query_blocks(call.where, MAX_QUERIES)
    sinks = None if call.score_options.sinks is None else call.score_options.sinks.detach().float()
    added = _added(call)
    longest = None if added is None else _longest(call, added)
    return decode.attend(call.q, call.k, call.v, added, sinks, scale=call.scale, seen=block.keys, longest=longest)


def _longest(call: AttentionCall, added: Bias) -> KeyNorms | None:
    """Return the largest key norm of each head, if it is known and the bias decays enough to skip keys."""
    # depends on the positions only: evaluated by the first layer, shared by all
    if call.max_key_norm is None or not call.at.cached("fades", lambda: _fades(added)):
        return None
    lengths, heads = call.max_key_norm(), call.k.shape[:2]
    came = f"got {tuple(lengths.shape)} for {tuple(heads)}"
    need(lengths.shape == heads, "each key head needs its largest norm", came, "return a tensor (batch, key heads)")
    return lengths.detach().float()


def _fades(added: Bias) -> bool:
    return bool((added.amax(-1) - added.amin(-1) > MIN_BIAS_RANGE).any())


def _added(call: AttentionCall) -> Bias | None:
    """Bias and mask as one tensor to add to the scores, -inf at hidden keys; None if there is neither."""
    mask = call.at.mask
    if mask is None or mask.is_floating_point():
        return None if mask is None else mask.detach().float()
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, float("-inf"))


def _in_torch(call: AttentionCall) -> Outputs | None:
    """Compute attention in PyTorch; None if a score or a result is not finite."""
    wide = torch.promote_types(call.q.dtype, torch.float32)
    rows = call.q.unflatten(1, (-1, call.groups)).flatten(2, 3).to(wide)
    scores = _scores(rows, call.k) * call.scale
    # taken before the soft cap, whose tanh would make infinity finite
    total = scores.detach().sum()
    scores = call.score_options.apply_softcap(scores.unflatten(2, (call.groups, -1)).flatten(1, 2))
    scores = scores if call.at.bias is None else scores + call.at.bias
    weights = attention_weights(scores, call.where.visible, call.score_options)
    out = _weighted_sum(weights.unflatten(1, (-1, call.groups)).flatten(2, 3), call.v)
    if not bool((total + out.detach().sum()).isfinite()):
        return None
    return out.unflatten(2, (call.groups, -1)).flatten(1, 2).to(call.q.dtype)


def _scores(rows: Wide, k: Keys) -> Scores:
    return torch.cat([rows @ piece.to(rows.dtype).mT for piece in _pieces(k, rows.dtype)], -1)


def _weighted_sum(weights: Scores, v: Values) -> Wide:
    pieces = _pieces(v, weights.dtype)
    shares = weights.split([piece.shape[2] for piece in pieces], -1)
    return torch.stack([share @ piece.to(share.dtype) for share, piece in zip(shares, pieces, strict=True)]).sum(0)


def _pieces(x: Keys, wide: torch.dtype) -> tuple[Tensor, ...]:
    size = x.shape[2] if x.dtype == wide else CONVERTED_ELEMENTS // max(1, x.shape[0] * x.shape[1] * x.shape[3])
    return x.split(max(1, size), 2)
