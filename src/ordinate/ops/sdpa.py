"""PyTorch's scaled_dot_product_attention with second derivatives, and right gradients at large scores.

Its fused kernels lack both.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ordinate.core.checks import need
from ordinate.core.devices import on_cpu, on_gpu
from ordinate.core.shapes import Keys, Outputs, Queries, Values
from ordinate.ops.double_backward import Tensors, gradients, one_by_one, untraceable
from ordinate.ops.heads import repeat_keys
from ordinate.ops.largest import largest_entry

# largest score for which the gradients of PyTorch's CPU kernel are trusted, see `distrusted_reason`
MAX_SAFE_SCORE = 1e6
# scores per block of rows in second derivatives
MAX_BLOCK_SCORES = 2**20
# nodes between the result and that of a fused kernel: slices and casts
MAX_NODES = 4


def sdpa(
    q: Queries,
    k: Keys,
    v: Values,
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    grouped: bool = False,
) -> Outputs:
    """Call `torch.nn.functional.scaled_dot_product_attention`; its gradients can be differentiated, too.

    Args:
        q: queries.
        k: keys.
        v: values.
        mask: True where a query may attend to a key, or a number added to each score; None: no mask.
        dropout: dropout probability of the weights; second derivatives need 0.
        is_causal: causal mask, from the first query and key on.
        scale: multiplies q.k; None: 1 / sqrt(head width).
        grouped: whether there are fewer key heads than query heads.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if untraceable(q) or distrusted_reason(q, k, v, scale):
        return _rows(slice(0, q.shape[2]), q, k, v, mask, dropout=dropout, is_causal=is_causal, scale=scale)
    options: dict[str, Any] = {"dropout_p": dropout, "is_causal": is_causal, "scale": scale, "enable_gqa": grouped}
    with _trusted_kernels(q, mask):
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    if out.requires_grad and not torch.compiler.is_compiling():
        _watch(out)
    return out


def distrusted_reason(q: Queries, k: Keys, v: Values, scale: float) -> str | None:
    """Return why PyTorch's gradients would be wrong for these inputs; None if they are right, or not asked for."""
    learns = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if not learns or not on_cpu(q) or torch.compiler.is_compiling():
        return None
    # the backward kernel recomputes the weights as exp(score - lse) from scores that it rounds differently than the
    # forward kernel; for large scores the difference is no longer small, and gradients become infinite
    if score_bound(q, k, scale) > MAX_SAFE_SCORE:
        return f"scores may exceed {MAX_SAFE_SCORE:g}, for which PyTorch's gradients are wrong on a CPU"
    return None


def score_bound(q: Queries, k: Keys, scale: float) -> float:
    """Upper bound of abs(scale * q.k), from the largest entries of q and k; 0 if there are none."""
    return q.shape[-1] * abs(scale) * largest_entry(q) * largest_entry(k)


def _trusted_kernels(q: Tensor, mask: Tensor | None) -> AbstractContextManager[Any]:
    """Context that excludes cuDNN's attention where a mask is given: with some it is wrong (PyTorch 2.11).

    Other kernels stay switched on or off as they are; where cuDNN's alone is on, all others are used.
    """
    if mask is None or not on_gpu(q):
        return nullcontext()
    others = [kernel for kernel in enabled_kernels() if kernel != SDPBackend.CUDNN_ATTENTION]
    return sdpa_kernel(others or [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def enabled_kernels() -> list[SDPBackend]:
    """Return PyTorch's kernels of attention that are switched on (`torch.nn.attention.sdpa_kernel`)."""
    return _cur_sdpa_kernel_backends()


# torch.compile cannot trace the question; torch.compiler.assume_constant_result, whose import of the compiler takes a
# second, sets this
enabled_kernels._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _watch(out: Tensor) -> None:
    """Replace the gradients of a fused kernel by ones that can be differentiated, where that is asked for."""
    node = out.grad_fn
    for _ in range(MAX_NODES):
        if node is None:
            return
        if node.name().startswith("ScaledDotProduct"):
            # a hook of the node costs nothing before the backward pass; an autograd function around the kernel would
            node.register_hook(_differentiable)
            return
        node = node.next_functions[0][0] if node.next_functions else None


def _differentiable(given: Sequence[Tensor | None], upstream: Sequence[Tensor | None]) -> Any:
    # inside a backward pass, grad mode is `create_graph`
    if not torch.is_grad_enabled():
        return None
    # read from the node, which frees them after the backward pass; a hook that held them would not
    node: Any = torch._C._current_autograd_node()
    need(
        node._saved_dropout_p == 0,
        "second derivatives of PyTorch's attention need no dropout",
        f"got dropout {node._saved_dropout_p}",
        "set dropout to 0, or call model.eval()",
    )
    mask = getattr(node, "_saved_attn_mask", None)
    mask = getattr(node, "_saved_attn_bias", None) if mask is None else mask
    inputs = node._saved_query, node._saved_key, node._saved_value, mask
    scale = inputs[0].shape[-1] ** -0.5 if node._saved_scale is None else node._saved_scale
    options = {"scale": scale, "is_causal": node._saved_is_causal}

    def plain(inputs: Tensors, upstream: Tensors) -> Iterator[tuple[Tensors, Tensors]]:
        q, k, *_ = inputs
        size = max(1, MAX_BLOCK_SCORES // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
        for begin in range(0, q.shape[2], size):
            rows = slice(begin, min(begin + size, q.shape[2]))
            yield (_rows(rows, *inputs, dropout=0.0, **options),), (upstream[0][:, :, rows],)

    def connected(asked: Tensor, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        made = [None if x is None else x.detach() for x in given]
        return gradients(lambda _: [*made, *[None] * (4 - len(made))], plain, inputs, [asked])

    found = one_by_one(connected, upstream[0], *given)
    return tuple(None if x is None else y for x, y in zip(given, found, strict=False))


def _rows(
    rows: slice,
    q: Queries,
    k: Keys,
    v: Values,
    mask: Tensor | None,
    *,
    dropout: float,
    is_causal: bool,
    scale: float,
) -> Float[Tensor, "b h rows e"]:
    """Rows of attention by the formula."""
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = (repeat_keys(x, q.shape[1]).to(wide) for x in (k, v))
    scores = q[:, :, rows].to(wide) @ k.mT * scale
    if is_causal:
        index = torch.arange(rows.start, rows.stop, device=q.device)[:, None]
        scores = scores.masked_fill(torch.arange(k.shape[2], device=q.device) > index, float("-inf"))
    if mask is not None:
        mask = mask[..., rows, :] if mask.shape[-2] > 1 else mask
        hidden = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, float("-inf")) if hidden else scores + mask.to(wide)
    hidden = scores == float("-inf")
    # a row without visible keys is set to 0 before the softmax: masking its NaN afterwards would leave NaN gradients
    weights = scores.masked_fill(hidden.all(-1, keepdim=True), 0.0).softmax(-1).masked_fill(hidden, 0.0)
    return (nn.functional.dropout(weights, dropout) @ v).to(q.dtype)
