"""Mixers that are attention: they differ in how queries, keys and weights are made, or in what reads them."""

from ordinate.mixer import KeyValues, Mixer
from ordinate.projections import Projections
from ordinate.scheme import PLACES, Placed
from ordinate.shapes import Tokens
from ordinate.tensors import need_size, need_vectors


class AttentionMixer(Projections, Mixer[KeyValues]):
    """Several heads that attend: every hook of a scheme, every geometry, and a memory of keys and values.

    Must: name its options by keyword, and hand the sizes to `Projections`.
    May: override what `Projections` is made of: `project_heads` (then `ask` and `offer` too), `attended`, `formula`,
        `gather`.
    """

    honours = frozenset(PLACES)
    equivariant = True
    crosses = True
    shardable = True

    def forward(self, x: Tokens, at: Placed, state: KeyValues | None = None) -> tuple[Tokens, KeyValues | None]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        self.check_where(at.where)
        return self.attend_self(x, at, state)
