"""torch.nn.MultiheadAttention in traceable operations: its fused kernels cannot be instrumented."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need


def multi_head_attention(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    **options: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the output of the module: softmax(q k^T / sqrt(d) + mask) v W_O.

    Boolean masks are True where a key is masked; others are added to the scores. `is_causal` is ignored: it is only a
    hint about a mask that is given as well. The returned weights are the mean over heads.

    Raises:
        ValueError: keys or values of another width than the queries, `add_bias_kv` or `add_zero_attn`.
    """
    plain = module.in_proj_weight is not None and module.bias_k is None and not module.add_zero_attn
    need(
        plain,
        "MultiheadAttention must have one in_proj_weight, without add_bias_kv and add_zero_attn",
        "got another",
        "write the attention out in torch operations",
    )
    parts = [x if module.batch_first else x.transpose(0, 1) for x in (query, key, value)]
    biases = [None] * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    weights = module.in_proj_weight.chunk(3)
    q, k, v = (
        nn.functional.linear(x, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, weight, bias in zip(parts, weights, biases, strict=True)
    )
    scores = torch.matmul(q, k.mT) * q.shape[-1] ** -0.5
    if attn_mask is not None:
        each = attn_mask.unflatten(0, (-1, module.num_heads)) if attn_mask.ndim == 3 else attn_mask
        scores = _masked(scores, each)
    if key_padding_mask is not None:
        scores = _masked(scores, key_padding_mask[:, None, None])
    given = scores.softmax(-1)
    out = module.out_proj(torch.matmul(given, v).transpose(1, 2).flatten(2))
    out = out if module.batch_first else out.transpose(0, 1)
    return out, given.mean(1) if need_weights else None


def _masked(scores: Float[Tensor, "b h i j"], mask: Tensor) -> Float[Tensor, "b h i j"]:
    return scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
