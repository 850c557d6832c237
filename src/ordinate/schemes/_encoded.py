"""Queries and keys in which position is encoded."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from ordinate.core.shapes import EncodedKeys, EncodedQueries


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
