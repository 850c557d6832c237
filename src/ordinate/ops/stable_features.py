"""Attention by random features with a running maximum of each feature: no row underflows, however large the inputs.

    out_i = sum_m e^(a_im - r_i) T_im,   a_im = log phi_m(q_i) + p_im,   r_i = max_m a_im
    T_im = sum_{j <= i} e^(log phi_m(k_j) - p_im) (v_j, 1),   p_im = max_{j <= i} log phi_m(k_j)

Each sum is stored divided by its own largest term, as in an online softmax, so that the denominator of a row is at
least 1. It takes many times as long as `ordinate.ops.chunks`, which divides all features by one number, and is exact
while none of them underflows.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Outputs

# tokens per chunk: the pairs of a chunk are held for each feature
CHUNK = 16
Logs = Float[Tensor, "b h n m"]
Sums = Float[Tensor, "b h m e"]
Peaks = Float[Tensor, "b h m"]


def stable_feature_attention(
    q: Logs, k: Logs, v: Float[Tensor, "b h n e"], sums: Sums, peaks: Peaks, *, causal: bool
) -> tuple[Float[Tensor, "b h n e"], Sums, Peaks]:
    """Return unnormalised outputs, each row divided by some number, and the state after the last token.

    Args:
        q: logarithms of the features of queries, up to a constant of each row.
        k: logarithms of the features of keys; -inf at masked keys.
        v: values, with a column of ones for the denominator.
        sums: state left by earlier tokens; each feature is divided by e^peak.
        peaks: the largest logarithm of each feature so far.
        causal: whether a row sees the keys up to its own only; otherwise all.
    """
    # room to add two of them
    peaks = peaks.clamp(min=torch.finfo(q.dtype).min / 4)
    if not causal:
        top = torch.maximum(peaks, k.detach().amax(2)) if k.shape[2] else peaks
        sums = sums * (peaks - top).exp()[..., None] + (k - top[:, :, None]).exp().mT @ v
        return _largest_is_one(q + top[:, :, None]) @ sums, sums, top
    outs = []
    for asks, keys, values in zip(*(x.split(CHUNK, 2) for x in (q, k, v)), strict=True):
        out, sums, peaks = _chunk(asks, keys, values, sums, peaks)
        outs.append(out)
    return torch.cat(outs, 2) if outs else v, sums, peaks


def _chunk(q: Logs, k: Logs, v: Outputs, sums: Sums, peaks: Peaks) -> tuple[Outputs, Sums, Peaks]:
    top = torch.cat([peaks[:, :, None], k.detach()], 2).cummax(2).values[:, :, 1:]
    asks = _largest_is_one(q + top)
    size = q.shape[2]
    future = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)[..., None]
    # masked before the exponential, which would overflow for later keys
    apart = (k[:, :, None] - top[:, :, :, None]).masked_fill(future, float("-inf")).exp()
    pairs = (asks[:, :, :, None] * apart).sum(-1)
    out = (asks * (peaks[:, :, None] - top).exp()) @ sums + pairs @ v
    last = top[:, :, -1]
    sums = sums * (peaks - last).exp()[..., None] + (k - last[:, :, None]).exp().mT @ v
    return out, sums, last


def _largest_is_one(logs: Logs) -> Logs:
    return (logs - logs.detach().amax(-1, keepdim=True)).exp()
