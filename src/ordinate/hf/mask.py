"""Masks of transformers as structure: what they hide is told, not written out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.scheme import Placed
from ordinate.schemes.none import Unmarked

# what may be asked of a mask that is not written out; everything else would read numbers that are not there
_ASKED = frozenset(
    getattr(Tensor, name).__get__
    for name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "grad_fn", "layout", "is_nested")
) | {Tensor.size, Tensor.dim, Tensor.__len__}


class Mask(Tensor):
    """Who sees whom, as a geometry, in the clothes of a tensor (batch, 1, queries, keys) that takes no memory.

    transformers hands it from the model to every layer. Whatever asks for its numbers gets an error: it has none.
    """

    at: Placed
    """The geometry, with no scheme: made once for all layers."""
    keys: int
    """How many keys the layers are to come with; the geometry leaves out those that no query sees."""

    @classmethod
    def of(cls, where: Geometry, batch: int, keys: int) -> "Mask":
        """The mask of a geometry."""
        nothing = torch.empty(1, 1, 1, 1, dtype=torch.bool, device=where.q_pos.device)
        made = nothing.expand(batch, 1, where.shape[0], keys).as_subclass(cls)
        made.at, made.keys = Unmarked().at(where), keys
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Tell sizes and the like; refuse everything else."""
        if func in _ASKED:
            return super().__torch_function__(func, types, args, kwargs or {})
        if func in (Tensor.contiguous, Tensor.detach):
            return args[0]
        if func is Tensor.to and torch.device(args[1]) == args[0].device:
            return args[0]
        raise ValueError(
            f"masks of attn_implementation='ordinate' are structure, not numbers; this model asks for "
            f"{getattr(func, '__name__', func)} of one; leave it to sdpa or eager"
        )

    def __repr__(self, **options: Any) -> str:
        """What it is."""
        return f"Mask({self.at.where})"


@dataclass(frozen=True)
class _Pattern:
    """What a mask function of transformers says.

    Args:
        causal: later keys are hidden.
        behind: keys seen at most, oneself and those before it.
        around: keys seen at most to either side, oneself included.
        documents: the document of each token.
    """

    causal: bool = False
    behind: int | None = None
    around: int | None = None
    documents: Tensor | None = None


def mask(
    *, batch_size: int, q_length: int, kv_length: int, mask_function: Callable[..., Any], **given: Any
) -> Tensor:
    """What transformers asks for where a model computes its attention here.

    Args:
        batch_size: rows.
        q_length: queries.
        kv_length: keys.
        mask_function: says of two tokens whether one sees the other.
        given: the rest: offsets, padding, device.

    Returns:
        A `Mask`; True and False written out where the function is of a user or another one that we do not know.
    """
    from transformers.masking_utils import sdpa_mask

    found = None if torch.compiler.is_compiling() else _pattern(mask_function)
    where = None if found is None else _geometry(found, q_length, kv_length, given)
    if where is not None:
        return Mask.of(where, batch_size, kv_length)
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "mask_function": mask_function}
    given = given | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    # without the two skips it is never None
    return cast(Tensor, sdpa_mask(**sizes, **given))


def _geometry(found: _Pattern, queries: int, keys: int, given: dict[str, Any]) -> Geometry | None:
    """The geometry that says the same; None: there is none."""
    real, first = given.get("attention_mask"), int(given.get("kv_offset", 0))
    start = int(given.get("q_offset", 0)) - first
    one_sided = found.behind is not None and not found.causal
    packed = found.documents
    if start < 0 or one_sided or (packed is not None and (real is not None or start or queries != keys)):
        return None
    # places of a cache that are still empty lie after every query
    seen = min(keys, start + queries) if found.causal else keys
    device = given.get("device")
    places = torch.arange(max(seen, start + queries), device=device)[None, :, None]
    sizes = [size for size in (found.behind, found.around) if size is not None and size < max(seen, start + queries)]
    where = Geometry(
        places[:, start : start + queries],
        places[:, :seen],
        hides_future=found.causal,
        start=start,
        window=min(sizes, default=None),
        ordered=True,
    )
    if packed is not None:
        return replace(where, q_document=packed, k_document=packed)
    if real is None:
        return where
    real = torch.nn.functional.pad(real, (0, max(0, first + seen - real.shape[1])))[:, first : first + seen]
    if bool(real.all()):
        return where
    # tokens of padding are hidden, and what they see themselves is left as the model has it
    return replace(where, q_document=where.q_pos.new_zeros(1, queries), k_document=real.long() - 1)


def _pattern(function: Callable[..., Any]) -> _Pattern | None:
    """What a mask function of transformers says, read from how it was made; None: it says something else."""
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
            return _Pattern(behind=held["sliding_window"])
        case "sliding_window_bidirectional_overlay":
            return _Pattern(around=held["sliding_window"] + 1)
        case "packed_sequence_mask_function":
            return _Pattern(documents=held["packed_sequence_mask"])
        case "remap_positions_for_packed_sequence":
            # inside of a document positions count on as places do
            return _pattern(held["mask_function"])
        case "and_masks":
            return _both([_pattern(each) for each in held["mask_functions"]])
    return None


def _both(parts: list[_Pattern | None]) -> _Pattern | None:
    """What several say together."""
    known = [part for part in parts if part is not None]
    documents = [part.documents for part in known if part.documents is not None]
    if len(known) < len(parts) or len(documents) > 1:
        return None
    sizes = [[size for part in known if (size := getattr(part, side)) is not None] for side in ("behind", "around")]
    behind, around = (min(size, default=None) for size in sizes)
    return _Pattern(any(part.causal for part in known), behind, around, documents[0] if documents else None)
