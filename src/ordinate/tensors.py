"""Refuse tensors that do not fit, before anything is computed with them; and say in which type to compute."""

from typing import Any

import torch
from torch import Tensor

from ordinate.checks import need

EXACT = (torch.int32, torch.int64, torch.float32, torch.float64)


def need_tensor(name: str, x: Any) -> None:
    """Raise a TypeError unless `x` is a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(x).__name__}; make it one by torch.as_tensor")


def need_vectors(name: str, x: Any, axes: str) -> None:
    """Raise unless `x` is a tensor of floating-point numbers with these axes."""
    need_tensor(name, x)
    # no text is made before it is needed: inside torch.compile a size may have none yet
    if x.ndim != len(axes.split(", ")):
        raise ValueError(f"{name} needs the axes ({axes}); got {tuple(x.shape)}; reshape it")
    if not x.is_floating_point():
        raise ValueError(f"{name} needs floating-point numbers; got {x.dtype}; convert it")


def need_mask(name: str, x: Any, axes: str) -> None:
    """Raise unless `x` is a tensor of True and False with these axes."""
    need_tensor(name, x)
    if x.dtype != torch.bool:
        raise ValueError(f"{name} is True where there is a token; got {x.dtype}; compare it: {name} = mask == 1")
    if x.ndim != len(axes.split(", ")):
        raise ValueError(f"{name} needs the axes ({axes}); got {tuple(x.shape)}; give one row for each example")


def need_positions(q_pos: Any, k_pos: Any) -> None:
    """Raise unless these are positions of queries and keys that belong together."""
    for name, pos in (("q_pos", q_pos), ("k_pos", k_pos)):
        need_tensor(name, pos)
        if pos.dtype not in EXACT:
            raise ValueError(
                f"positions are int32, int64, float32 or float64; got {pos.dtype} for {name}; "
                "convert them: narrower types cannot count far, nor tell what lies behind from what lies ahead"
            )
    shapes = tuple(q_pos.shape), tuple(k_pos.shape)
    if q_pos.ndim != 3 or k_pos.ndim != 3:
        raise ValueError(
            f"positions need the axes (batch, tokens, axes); got shapes {shapes[0]} and {shapes[1]}; "
            "add those missing: pos[None, :, None]"
        )
    if q_pos.shape[-1] != k_pos.shape[-1]:
        raise ValueError(
            f"queries and keys need the same position axes; got shapes {shapes[0]} and {shapes[1]}; "
            "give both the same last axis"
        )
    need_rows("q_pos", q_pos, "k_pos", k_pos)


def need_documents(q_pos: Tensor, k_pos: Tensor, q_document: Any, k_document: Any) -> None:
    """Raise unless all of these positions belong to a document each, or none."""
    if (q_document is None) != (k_document is None):
        raise ValueError("documents are given for queries and keys alike; got one side only; give both, or neither")
    if q_document is None:
        return
    for name, pos, document in (("q_document", q_pos, q_document), ("k_document", k_pos, k_document)):
        need_tensor(name, document)
        if document.dtype not in EXACT[:2]:
            raise ValueError(f"documents are int32 or int64; got {document.dtype}; number them from 0, -1 is padding")
        if document.ndim != 2:
            raise ValueError(f"{name} needs the axes (batch, tokens); got {tuple(document.shape)}; reshape it")
        if document.shape[1] != pos.shape[1]:
            raise ValueError(
                f"every token belongs to a document; got {document.shape[1]} documents for {pos.shape[1]} positions; "
                "name one for each; -1 is padding"
            )
        need_rows(name, document, "positions", pos)
    need_rows("q_document", q_document, "k_document", k_document)


def need_rows(name: str, x: Tensor, other: str, y: Tensor) -> None:
    """Raise unless the two tell the same rows apart, or one of them serves all; on one device."""
    if x.shape[0] != y.shape[0] and 1 not in (x.shape[0], y.shape[0]):
        raise ValueError(
            f"{name} and {other} need the same rows, or one for all; got {x.shape[0]} and {y.shape[0]}; "
            "give both the batch"
        )
    need_device(name, x, other, y)


def need_device(name: str, x: Tensor, other: str, y: Tensor) -> None:
    """Raise unless both live on one device."""
    if x.device != y.device:
        raise ValueError(f"{name} and {other} live on one device; got {x.device} and {y.device}; move them to one")


def need_tokens(name: str, x: Tensor, tokens: int, pos: Tensor) -> None:
    """Raise unless `x`, which holds so many tokens, has those of these positions."""
    if tokens != pos.shape[1]:
        raise ValueError(
            f"{name} must hold the tokens of the geometry; got {tokens} in {tuple(x.shape)} for {pos.shape[1]}; "
            "order its axes, or build the geometry for these tokens"
        )
    if pos.shape[0] not in (1, x.shape[0]):
        raise ValueError(
            f"{name} must have the rows of the geometry; got {x.shape[0]} for {pos.shape[0]}; "
            "build the geometry for this batch"
        )
    need_device(name, x, "the geometry", pos)


def need_size(name: str, scheme: Any, size: str, came: int) -> None:
    """Raise unless a scheme or a mixer that keeps this size (`width`, `heads`, ...) was made for what came."""
    made_for = getattr(scheme, size, None)
    # `in` would compare a size that torch.compile keeps open by identity
    if made_for is not None and made_for != came:
        kind = type(scheme).__name__
        raise ValueError(f"this {kind} was made for {size} {made_for}; got {came} in {name}; make one for {came}")


def need_served(name: str, pos: Tensor, axes: tuple[int, ...], *, whole: bool) -> None:
    """Raise unless a scheme of this name takes positions with so many axes, and fractions where they are some."""
    served = f"{name} takes positions with {' or '.join(map(str, axes))} axis"
    remedy = "choose a scheme for that many axes, or drop the axes it cannot see"
    need(pos.shape[-1] in axes, served, lambda: f"got {pos.shape[-1]} axes", remedy)
    remedy = "round them, or choose a scheme for fractional positions"
    need(not whole or not pos.is_floating_point(), f"{name} takes whole positions", f"got {pos.dtype}", remedy)


def need_below(name: str, pos: Tensor, length: int) -> None:
    """Raise unless all positions are in the table of so many that a scheme of this name has."""
    low, high = pos.min().item(), pos.max().item()
    remedy = f"build it with max_length={int(high) + 1} or more, or shorten the input"
    need(
        low >= 0 and high < length,
        f"{name} serves positions 0 to {length - 1} (max_length {length})",
        f"got {low} to {high}",
        "count from 0" if low < 0 else remedy,
    )


def at_least_float32(x: Tensor) -> Tensor:
    """In float32, or in float64 if it is so already: for sums that 16 bits would lose."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
