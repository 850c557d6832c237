"""Synthetic attention patterns, and replacing those of some heads by them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Weights
from ordinate.probing._adapter import Hooks, ModelInfo
from ordinate.probing.measures.attention_by_offset import Pairs


@dataclass(frozen=True)
class SyntheticPattern:
    """Synthetic attention pattern: a fixed offset, or exponential decay; if neither is given, the first token.

    Args:
        offset: offset of the key that receives all attention [tokens].
        slope: attention is proportional to e^(-slope distance), as under ALiBi.
    """

    offset: int | None = None
    slope: float | None = None


class ReplacePattern(Hooks):
    """Replaces the attention pattern of some heads by a uniform or a synthetic one.

    Args:
        facts: description of the model.
        heads: (layer, head) of each.
        patterns: synthetic pattern of each head; None: uniform attention.
    """

    def __init__(
        self, facts: ModelInfo, heads: list[tuple[int, int]], patterns: list[SyntheticPattern] | None = None
    ) -> None:
        self.facts, self.heads, self.targets = facts, heads, patterns

    def attention_pattern(self, layer: int, weights: Weights) -> Weights | None:
        chosen = [place for place, (own, _) in enumerate(self.heads) if own == layer]
        if not chosen:
            return None
        changed = weights.clone()
        for place in chosen:
            target = SyntheticPattern(slope=0.0) if self.targets is None else self.targets[place]
            changed[:, self.heads[place][1]] = self._map(weights.shape[-1], target).to(weights)
        return changed

    def _map(self, length: int, target: SyntheticPattern) -> Float[Tensor, "n n"]:
        i = torch.arange(length)
        if target.slope is not None:
            seen = torch.ones(length, length).tril() if self.facts.causal else torch.ones(length, length)
            fallen = seen * torch.exp(-target.slope * self._distance(length))
            return fallen / fallen.sum(-1, keepdim=True)
        wanted = torch.zeros_like(i) if target.offset is None else (i - target.offset).clamp(0, length - 1)
        return torch.nn.functional.one_hot(wanted, length).float()

    def _distance(self, length: int) -> Float[Tensor, "n n"]:
        """Distance of each query and key; class tokens have no position and count as near."""
        front = self.facts.prefix
        own = Pairs.of(self.facts, length - front).distance
        return torch.nn.functional.pad(own, (front, 0, front, 0)).float()
