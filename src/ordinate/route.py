"""How attention is computed: one contract, several ways."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ordinate.geometry import Geometry
from ordinate.scheme import Placed
from ordinate.shapes import Keys, Outputs, Queries, Values


@dataclass(frozen=True, eq=False)
class Call:
    """Everything that one attention needs: softmax(q k^T * scale + bias) v over the visible pairs.

    Args:
        q: encoded queries.
        k: encoded keys; fewer heads than the queries when heads are grouped.
        v: values, as many as keys.
        at: the scheme and the geometry.
        scale: multiplies q.k.
        dropout: share of the weights set to zero, the others grow to make up for it.
    """

    q: Queries
    k: Keys
    v: Values
    at: Placed
    scale: float
    dropout: float

    @property
    def where(self) -> Geometry:
        """The geometry."""
        return self.at.where

    @property
    def groups(self) -> int:
        """Query heads that share a key head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key, over batch and heads."""
        return math.prod(self.q.shape[:3]) * self.k.shape[2]

    @property
    def flops(self) -> int:
        """Floating-point operations of the two products, hidden pairs included."""
        return 2 * self.pairs * (self.q.shape[3] + self.v.shape[3])


class Route(ABC):
    """A way to compute attention.

    Must: `order`, `refuses`, `run`, `bytes`; agree with the route `reference`, forward and backward.
    """

    order: ClassVar[int]
    """Routes are tried from the lowest order up."""

    @abstractmethod
    def refuses(self, call: Call) -> str | None:
        """Why this route cannot take the call; None: it takes it."""

    @abstractmethod
    def run(self, call: Call) -> Outputs:
        """The attention; a query that sees nothing gets exactly 0 and passes no gradient."""

    @abstractmethod
    def bytes(self, call: Call) -> int:
        """How much the forward pass holds beyond its inputs and its output."""
