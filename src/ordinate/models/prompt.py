"""What a decoder goes on from: several texts at once, and what it has read before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from ordinate.checks import need
from ordinate.geometry import PADDING, Geometry
from ordinate.models.cache import Cache
from ordinate.shapes import Ids
from ordinate.tensors import need_mask


@dataclass(frozen=True, eq=False)
class Prompt:
    """Beginnings of texts, of one length or filled up on the left, and what was read before them.

    Args:
        ids: their tokens.
        real: True where there is a token, False where there is padding; None: all are real.
        after: what the model has read before, by one row for all of them or a row each. It stays as it is, so that
            one reading serves many continuations.

    Raises:
        ValueError: no token, padding on the right, or rows that do not fit each other.
    """

    ids: Ids
    real: Bool[Tensor, "rows tokens"] | None = None
    after: Cache | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.ids.shape)
        need(
            self.ids.ndim == 2 and self.ids.shape[1] > 0,
            "the prompt needs at least one token",
            f"got {shape}",
            "begin with something, a line break for example",
        )
        if self.real is not None:
            need_mask("real", self.real, "batch, tokens")
            came = f"got {tuple(self.real.shape)} for ids of {shape}"
            need(self.real.shape == self.ids.shape, "each token is real or padding", came, "say it of each")
            ends = bool(self.real[:, -1].all())
            need(
                ends,
                "prompts are filled up on the left",
                "got padding at the end of a row",
                "move it to its beginning",
            )
        rows = 1 if self.after is None or self.after.where is None else self._rows_before(self.after)
        came = f"got {rows} rows for {shape[0]} prompts"
        need(
            rows in (1, shape[0]), "what was read has one row, or one for each prompt", came, "take rows: cache.take"
        )

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], *, after: Cache | None = None) -> "Prompt":
        """Several texts as lists of tokens, the shorter ones filled up."""
        longest = max((len(row) for row in rows), default=0)
        ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], dtype=torch.long)
        sizes = torch.tensor([len(row) for row in rows])
        real = torch.arange(longest) >= longest - sizes[:, None]
        return cls(ids.reshape(len(rows), longest), None if bool(real.all()) else real, after)

    def begin(self) -> tuple[Cache, Geometry | None]:
        """A memory to go on with, and where the tokens stand after it; None: one after another."""
        cache = Cache() if self.after is None else self.after.copy()
        batch = self.ids.shape[0]
        if cache.where is not None and batch > self._rows_before(cache):
            cache = cache.take(torch.zeros(batch, dtype=torch.long, device=self.ids.device))
        if self.real is None:
            return cache, None
        if not len(cache):
            return cache, Geometry.padded(self.real)
        # positions go on from what was read, past the padding
        plain, counted = cache.following(1), self.real.long().cumsum(1)
        document = self.ids.new_zeros(batch, 1) if plain.k_document is None else plain.k_document
        pos = plain.k_pos[:, :1] - 1 + counted.clamp(min=1)[..., None]
        own = document.expand(batch, -1)[:, :1].where(self.real, PADDING)
        places = {"q_pos": pos, "k_pos": pos, "q_document": own, "k_document": own}
        return cache, replace(plain, **places, follows=None, ordered=False)

    @staticmethod
    def _rows_before(cache: Cache) -> int:
        sizes = [state.rows for state in cache.states if state is not None]
        return max(sizes, default=1)
