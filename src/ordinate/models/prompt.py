"""Prompts for generation: batches of different lengths, optionally after a shared prefix cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ordinate.core.checks import need, need_whole
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Ids
from ordinate.core.tensors import need_mask
from ordinate.models.cache import Cache
from ordinate.models.score_changes import NO_TOKEN


@dataclass(frozen=True, eq=False)
class Prompt:
    """Batch of prompts, left-padded, optionally after a cached prefix.

    Args:
        ids: token ids.
        real: True at tokens, False at padding; None: no padding.
        prefix: cache of a prefix, with one row for all prompts or one for each. It is not modified, so that several
            generations can share it.

    Raises:
        ValueError: no tokens, padding on the right, or different batch sizes.
    """

    ids: Ids
    real: Bool[Tensor, "rows tokens"] | None = None
    prefix: Cache | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.ids.shape)
        need(
            self.ids.ndim == 2 and self.ids.shape[1] > 0,
            "the prompt needs at least one token",
            f"got {shape}",
            "begin with some token, for example a line break",
        )
        if self.real is not None:
            need_mask("real", self.real, "batch, tokens")
            came = f"got {tuple(self.real.shape)} for ids of {shape}"
            need(self.real.shape == self.ids.shape, "real needs the shape of ids", came, "give one entry per token")
            ends = bool(self.real[:, -1].all())
            need(
                ends,
                "prompts must be left-padded",
                "got padding at the end of a row",
                "move it to the beginning",
            )
        rows = 1 if self.prefix is None or self.prefix.where is None else self._rows_before(self.prefix)
        came = f"got {rows} rows for {shape[0]} prompts"
        need(rows in (1, shape[0]), "the cache needs one row, or one for each prompt", came, "use cache.select_rows")

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]], *, prefix: Cache | None = None) -> "Prompt":
        """Build a prompt from lists of token ids, left-padding the shorter ones."""
        for token in (token for row in rows for token in row):
            need_whole("a token id", token)
        longest = max((len(row) for row in rows), default=0)
        ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], dtype=torch.long)
        sizes = torch.tensor([len(row) for row in rows])
        real = torch.arange(longest) >= longest - sizes[:, None]
        return cls(ids.reshape(len(rows), longest), None if bool(real.all()) else real, prefix)

    @property
    def texts(self) -> Int[Tensor, "rows tokens"]:
        """Token ids, with -1 at padding."""
        return self.ids.long() if self.real is None else self.ids.long().masked_fill(~self.real, NO_TOKEN)

    def start_cache(self) -> tuple[Cache, Geometry | None]:
        """Return a cache to extend, and the geometry of the prompt; None: no padding, positions are consecutive."""
        cache = Cache() if self.prefix is None else self.prefix.copy()
        batch = self.ids.shape[0]
        if cache.where is not None and batch > self._rows_before(cache):
            cache = cache.select_rows(torch.zeros(batch, dtype=torch.long, device=self.ids.device))
        if self.real is None:
            return cache, None
        if not len(cache):
            return cache, Geometry.padded(self.real)
        # positions continue those of the cache and do not count padding
        plain, counted = cache.next_geometry(1), self.real.long().cumsum(1)
        document = self.ids.new_zeros(batch, 1) if plain.k_document is None else plain.k_document
        pos = plain.k_pos[:, :1] - 1 + counted.clamp(min=1)[..., None]
        own = document.expand(batch, -1)[:, :1].where(self.real, PADDING)
        places = {"q_pos": pos, "k_pos": pos, "q_document": own, "k_document": own}
        return cache, replace(plain, **places, continues=None, consecutive=False)

    @staticmethod
    def _rows_before(cache: Cache) -> int:
        sizes = [state.batch_size for state in cache.states if state is not None]
        return max(sizes, default=1)
