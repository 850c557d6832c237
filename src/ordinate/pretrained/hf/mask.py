"""Attention masks of transformers as a structured `Geometry` instead of a dense tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ordinate.core.attention_chunks import in_chunks
from ordinate.core.geometry import Geometry
from ordinate.schemes._scheme import Placed
from ordinate.schemes.none import NoPosition

# attributes that can be read without the mask's values, some by torch.compile only; every other operation would read
# memory that holds no mask
_PROPERTIES = (
    "shape dtype device ndim requires_grad is_leaf grad_fn layout is_nested is_sparse is_quantized is_mkldnn"
)
_METHODS = "size dim __len__ stride storage_offset untyped_storage is_conj is_neg _is_view"
_METADATA = frozenset(
    [getattr(Tensor, name).__get__ for name in (*_PROPERTIES.split(), "grad", "_base")]
    + [getattr(Tensor, name) for name in _METHODS.split()]
)
# functions with floating-point results that read a boolean mask as one
_SELECTIONS = frozenset(
    {
        torch.where,
        Tensor.where,
        torch.masked_fill,
        Tensor.masked_fill,
        Tensor.masked_fill_,
        scaled_dot_product_attention,
    }
)


class StructuredMask(Tensor):
    """A `Geometry` wrapped as a tensor subclass of shape (batch, 1, queries, keys) that takes no memory.

    transformers passes it from the model to every layer. Any operation that needs its values raises an error.
    """

    at: Placed
    """The geometry without a scheme, shared by all layers."""
    keys: int
    """Number of keys that the layers pass; the geometry leaves out those that no query sees."""

    @classmethod
    def of(cls, where: Geometry, batch: int, keys: int) -> "StructuredMask":
        """Wrap a geometry as a mask."""
        one = torch.empty(1, 1, 1, 1, dtype=torch.bool, device=where.q_pos.device)
        made = one.expand(batch, 1, where.shape[0], keys).as_subclass(cls)
        made.at, made.keys = NoPosition().at(where), keys
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Allow metadata (shape, dtype, device); refuse operations on values."""
        if func in _METADATA:
            return super().__torch_function__(func, types, args, kwargs or {})
        if func in (Tensor.contiguous, Tensor.detach):
            return args[0]
        if func is Tensor.to and _device(*args[1:], **(kwargs or {})) == args[0].device:
            return args[0]
        raise ValueError(
            f"masks of attn_implementation='ordinate' are structured and hold no values; this model calls "
            f"{getattr(func, '__name__', func)} on one; use attn_implementation='sdpa' or 'eager'"
        )

    def __repr__(self, **options: Any) -> str:
        return f"StructuredMask({self.at.where})"


def _device(device: Any = None, dtype: Any = None, **_: Any) -> torch.device | None:
    """The device that arguments of `Tensor.to` name; None if they name a type."""
    return torch.device(device) if isinstance(device, str | torch.device) and dtype is None else None


class DenseMask(Tensor):
    """A boolean mask (batch, 1, queries, keys), True at visible pairs, that only selects.

    Layers with attention code of their own add a mask to their scores, as the additive one of `eager`. This one would
    add 1 at visible pairs and hide none, without an error.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Compute on the boolean tensor; refuse to use its values as numbers."""
        came = super().__torch_function__(func, types, args, kwargs or {})
        if func in _METADATA or not isinstance(came, Tensor) or came.dtype == torch.bool:
            return came
        if came.is_floating_point() and func not in _SELECTIONS:
            raise ValueError(
                f"dense masks of attn_implementation='ordinate' are boolean, True at visible pairs; this model calls "
                f"{getattr(func, '__name__', func)} on one as if it held numbers; use attn_implementation='eager'"
            )
        return came.as_subclass(Tensor)


@dataclass(frozen=True)
class _Pattern:
    """Structure of a transformers mask function.

    Args:
        causal: whether later keys are masked.
        window: one-sided sliding window: visible keys up to and including the query's own.
        two_sided: two-sided sliding window: visible keys to either side, the query's own included.
        documents: document id of each token (packed sequences).
        positions: position of each token in its document (packed sequences).
        chunk: attention in chunks of so many tokens.
        shift: tokens of padding on the left of each row, which chunks do not count.
    """

    causal: bool = False
    window: int | None = None
    two_sided: int | None = None
    documents: Tensor | None = None
    positions: Tensor | None = None
    chunk: int | None = None
    shift: Tensor | None = None


def create_mask(
    *, batch_size: int, q_length: int, kv_length: int, mask_function: Callable[..., Any], **given: Any
) -> Tensor:
    """Mask function in the signature of transformers' AttentionMaskInterface.

    Args:
        batch_size: number of sequences.
        q_length: number of queries.
        kv_length: number of keys.
        mask_function: predicate (batch, head, query, key) -> visible.
        given: remaining arguments: offsets, padding mask, device.

    Returns:
        A `StructuredMask`; a `DenseMask` where the mask function is not recognised; a plain boolean tensor under
        torch.compile.
    """
    from transformers.masking_utils import sdpa_mask

    compiling = torch.compiler.is_compiling()
    found = None if compiling else _pattern(mask_function)
    # `generate` decodes from a static cache in a compiled forward pass, whose mask it makes before: dense
    static = found is not None and found.causal and q_length == 1 and not given.get("allow_is_causal_skip", True)
    where = None if found is None or static else _geometry(found, q_length, kv_length, given)
    if where is not None:
        return StructuredMask.of(where, batch_size, kv_length)
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "mask_function": mask_function}
    given = given | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    # sdpa_mask returns None only if one of the two skips is allowed
    dense = cast(Tensor, sdpa_mask(**sizes, **given))
    return dense if compiling or static else dense.as_subclass(DenseMask)


def _geometry(found: _Pattern, queries: int, keys: int, given: dict[str, Any]) -> Geometry | None:
    """Return the equivalent geometry, or None if there is none."""
    real, first = given.get("attention_mask"), int(given.get("kv_offset", 0))
    start = int(given.get("q_offset", 0)) - first
    one_sided = found.window is not None and not found.causal
    # the window of a model without windowed layers may be 0 (Qwen2-MoE): its mask is made, and not used
    empty, packed = found.window == 0, found.documents
    if start < 0 or one_sided or empty or (packed is not None and (real is not None or start or queries != keys)):
        return None
    # unused slots of a static cache lie after every query
    seen = min(keys, start + queries) if found.causal else keys
    device = given.get("device")
    places = torch.arange(max(seen, start + queries), device=device)[None, :, None]
    sizes = [
        size for size in (found.window, found.two_sided) if size is not None and size < max(seen, start + queries)
    ]
    where = Geometry(
        places[:, start : start + queries],
        places[:, :seen],
        is_causal=found.causal,
        start=start,
        window=min(sizes, default=None),
        consecutive=True,
    )
    where = _padded(where, real, first) if packed is None else replace(where, q_document=packed, k_document=packed)
    return _in_chunks(where, found, first)


def _padded(where: Geometry, real: Tensor | None, first: int) -> Geometry:
    """Return a geometry with padding, if there is any; `first` is the index of the first key in the padding mask."""
    queries, seen = where.shape
    if real is None:
        return where
    real = torch.nn.functional.pad(real, (0, max(0, first + seen - real.shape[1])))[:, first : first + seen]
    if bool(real.all()):
        return where
    # padding keys get document -1 and are masked for every query; padding queries still see the real keys
    return replace(where, q_document=where.q_pos.new_zeros(1, queries), k_document=real.long() - 1)


def _in_chunks(where: Geometry, found: _Pattern, first: int) -> Geometry:
    """Return a geometry in chunks, counted from the first token of each document or row that is not padding."""
    if found.chunk is None:
        return where
    if found.positions is not None:
        q_pos = k_pos = found.positions[..., None]
    else:
        padding = 0 if found.shift is None or not bool(found.shift.any()) else found.shift[:, None, None]
        q_pos, k_pos = (pos + first - padding for pos in (where.q_pos, where.k_pos))
    return in_chunks(replace(where, q_pos=q_pos, k_pos=k_pos), found.chunk)


def _pattern(function: Callable[..., Any]) -> _Pattern | None:
    """Recognise a mask function of transformers by its qualified name and closure; None: not recognised."""
    if getattr(function, "__module__", "") != "transformers.masking_utils":
        return None
    code, cells = function.__code__, function.__closure__ or ()  # type: ignore[attr-defined]
    held = dict(zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    match function.__qualname__.partition(".")[0]:  # type: ignore[attr-defined]
        case "causal_mask_function":
            return _Pattern(causal=True)
        case "bidirectional_mask_function":
            return _Pattern()
        case "sliding_window_overlay":
            return _Pattern(window=held["sliding_window"])
        case "sliding_window_bidirectional_overlay":
            return _Pattern(two_sided=held["sliding_window"] + 1)
        case "chunked_overlay":
            return _Pattern(chunk=held["chunk_size"], shift=held["left_padding"])
        case "packed_sequence_mask_function":
            return _Pattern(documents=held["packed_sequence_mask"])
        case "remap_positions_for_packed_sequence":
            # positions restart in each document; offsets within a document equal offsets of indices
            inner = _pattern(held["mask_function"])
            return None if inner is None else replace(inner, positions=held["position_ids"])
        case "and_masks":
            return _both([_pattern(each) for each in held["mask_functions"]])
    return None


def _both(parts: list[_Pattern | None]) -> _Pattern | None:
    """Return the intersection of several patterns; None: one is not recognised, or two have what one can have."""
    known = [part for part in parts if part is not None]
    given = {
        name: [value for part in known if (value := getattr(part, name)) is not None]
        for name in ("window", "two_sided", "documents", "positions", "chunk", "shift")
    }
    windows = {side: min(given.pop(side), default=None) for side in ("window", "two_sided")}
    if len(known) < len(parts) or any(len(values) > 1 for values in given.values()):
        return None
    single = {name: values[0] for name, values in given.items() if values}
    return _Pattern(causal=any(part.causal for part in known), **windows, **single)
