"""Synthetic attention patterns, and replacing those of some heads by them."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.shapes import Weights
from ordinate.probing._adapter import MASKED_SCORE, Hooks, ModelInfo
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
    """Replaces the attention pattern of some heads by a uniform or a synthetic one, over the keys that a layer sees.

    Args:
        facts: description of the model.
        heads: (layer, head) of each.
        patterns: synthetic pattern of each head; None: uniform attention.
    """

    def __init__(
        self, facts: ModelInfo, heads: list[tuple[int, int]], patterns: list[SyntheticPattern] | None = None
    ) -> None:
        self.facts, self.heads, self.targets = facts, heads, patterns
        self.visible: Bool[Tensor, "n n"] | None = None

    def attention_scores(self, layer: int, scores: Weights) -> None:
        self.visible = (scores > MASKED_SCORE).flatten(0, 1).any(0).cpu()

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
            pairs = Pairs.of(self.facts, length - self.facts.prefix, self.visible)
            fallen = pairs.visible * torch.exp(-target.slope * self._distance(pairs))
            return fallen / fallen.sum(-1, keepdim=True)
        wanted = torch.zeros_like(i) if target.offset is None else (i - target.offset).clamp(0, length - 1)
        return torch.nn.functional.one_hot(wanted, length).float()

    def _distance(self, pairs: Pairs) -> Float[Tensor, "n n"]:
        """Distance of each query and key; class tokens have no position and count as near."""
        front = self.facts.prefix
        return torch.nn.functional.pad(pairs.distance, (front, 0, front, 0)).float()
