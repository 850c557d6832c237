"""Queries and keys in which position is encoded."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ordinate.core.checks import need
from ordinate.core.shapes import EncodedKeys, EncodedQueries
from ordinate.core.tensors import has_memory


@dataclass(frozen=True)
class Encoded:
    """Queries and keys in which position is encoded: what `Placed.encode` returns and `attend_encoded` takes.

    It is no pair of tensors, so that it cannot be given to `attend`, which would encode it a second time.

    Args:
        q: encoded queries.
        k: encoded keys, those of a cache included.
        scheme: the scheme that encoded them, so that `attend_encoded` can refuse another; None: not known.
    """

    q: EncodedQueries
    k: EncodedKeys
    scheme: nn.Module | None = None

    @property
    def pair(self) -> tuple[EncodedQueries, EncodedKeys]:
        """The two tensors, for attention of another library."""
        return self.q, self.k

    def __iter__(self) -> Any:
        """Refuse to be unpacked, as in `attend(*at.encode(q, k), v, at)`.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "encoded queries and keys are not unpacked; attend(q, k, v, at) takes raw ones and encodes them itself; "
            "attend_encoded(encoded, v, at) takes encoded ones; the tensors are encoded.pair"
        )


def need_memory(into: EncodedKeys | None, keys: EncodedKeys) -> None:
    """Raise unless keys can be encoded into other memory.

    Args:
        into: the memory; None: memory of their own.
        keys: keys that the encoded ones are like.

    Raises:
        ValueError: another shape, dtype or device, channels that are not contiguous, numbers that share memory, the
            memory of the keys themselves, or enabled gradients.
    """
    if into is None:
        return
    remedy = "give memory like the encoded keys, or leave out into="
    need(
        into.shape == keys.shape and into.dtype == keys.dtype and into.device == keys.device,
        "the memory for encoded keys has their shape, dtype and device",
        lambda: f"got {_described(into)} for {_described(keys)}",
        remedy,
    )
    # kernels write by address
    strides = [stride for size, stride in zip(into.shape, into.stride(), strict=True) if size > 1]
    need(
        0 not in strides and (into.shape[3] == 1 or into.stride(3) == 1),
        "the memory for encoded keys has contiguous channels, and a place for each number",
        lambda: f"got strides of {into.stride()}",
        remedy,
    )
    same = has_memory(keys) and into.untyped_storage().data_ptr() == keys.untyped_storage().data_ptr()
    need(not same, "keys are encoded into other memory than their own", "got a part of the same storage", remedy)
    remedy = "encode under torch.no_grad(), or leave out into="
    must, came = "keys are encoded into given memory without gradients", "got a call with gradients enabled"
    need(not torch.is_grad_enabled(), must, came, remedy)


def _described(x: EncodedKeys) -> str:
    return f"{tuple(x.shape)}, {x.dtype}, {x.device}"
