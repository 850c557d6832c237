"""Attention by offset: attention mass per relative offset, on the first token, and mean attention distance."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.shapes import Weights
from ordinate.probing._adapter import Hooks, ModelAdapter, ModelInfo
from ordinate.probing.measures.samples import Permutation, Sample

# largest offset, and tokens at the beginning of each text whose full attention maps are summed
MAX_OFFSET, MAP_LENGTH = 16, 64


@dataclass(frozen=True)
class AttentionProfile:
    """Attention profile of each head, averaged over the queries for which all offsets exist.

    Args:
        offsets: query - key; negative for keys ahead of the query [tokens].
        mass: attention mass at each offset, as a share of the mass not on the first token.
        first_token_mass: attention mass on the first token (attention sink).
        distance: mean attention distance, the first token left out [tokens].
        uniform_mass: mass at each offset under uniform attention.
        uniform_first_token_mass: mass on the first token under uniform attention.
    """

    offsets: list[int]
    mass: Float[ndarray, "texts layers h offsets"]
    first_token_mass: Float[ndarray, "texts layers h"]
    distance: Float[ndarray, "texts layers h"]
    uniform_mass: float
    uniform_first_token_mass: float


class ProfileHooks(Hooks):
    """Accumulates attention mass by offset.

    Args:
        facts: description of the model.
        length: tokens of a text, or patches of an image.
    """

    skip_head = True

    def __init__(self, facts: ModelInfo, length: int) -> None:
        reach = MAX_OFFSET if facts.grid is None else facts.grid[1] + 1
        self.reach, self.front = min(reach, length // 3), facts.prefix
        self.offsets = list(range(0 if facts.causal else -self.reach, self.reach + 1))
        # queries for which every offset exists, and none of them is the first token
        self.rows = slice(self.reach + 1, length if facts.causal else length - self.reach)
        i, j = torch.arange(length)[self.rows, None], torch.arange(length)
        self.apart = (i - j).abs() * (j > 0)
        seen = (i + 1 if facts.causal else torch.full_like(i, length)).double()
        self.even, self.uniform_first_token_mass = float((1 / (seen - 1)).mean()), float((1 / seen).mean())
        self.mass: list[list[Tensor]] = [[] for _ in range(facts.layers)]
        self.sink: list[list[Tensor]] = [[] for _ in range(facts.layers)]
        self.distance: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def attention_pattern(self, layer: int, weights: Weights) -> None:
        # class tokens and registers have no position
        own = weights[..., self.front :, self.front :]
        first = own[..., self.rows, 0].double()
        left = (1 - first if self.front == 0 else own[..., self.rows, 1:].double().sum(-1)).sum(-1).clamp(min=1e-9)
        found = [self._at(own, offset) for offset in self.offsets]
        self.mass[layer].append((torch.stack(found, -1) / left[..., None]).cpu())
        self.sink[layer].append(first.mean(-1).cpu())
        far = (own[..., self.rows, :] * self.apart.to(own)).double().sum((-2, -1))
        self.distance[layer].append((far / left).cpu())

    def _at(self, weights: Tensor, offset: int) -> Tensor:
        rows = torch.arange(weights.shape[-1])[self.rows]
        return weights[..., rows, rows - offset].double().sum(-1)


class AttentionMaps:
    """Sum of full attention maps over texts, and the share of score variance that is common to all texts.

    Args:
        facts: description of the model.
        length: tokens at the beginning of each text.
    """

    def __init__(self, facts: ModelInfo, length: int) -> None:
        shape = (facts.layers, facts.heads, length, length)
        self.texts, self.places = 0, slice(facts.prefix, facts.prefix + length)
        self.total, self.common = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        self.squares = torch.zeros(shape[:2], dtype=torch.float64)
        self.seen = torch.ones(length, length).tril().bool() if facts.causal else torch.ones(length, length).bool()

    def attention_scores(self, layer: int, scores: Weights) -> None:
        """Accumulate attention scores, each row centred over its visible keys (the softmax ignores the mean)."""
        own = scores[..., self.places, self.places].double().cpu()
        # pairs hidden by a sliding window carry -inf or a huge negative score
        seen = self.seen & (own > -1e4)
        own = torch.where(seen, own, 0.0)
        level = torch.where(seen, own - own.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1), 0.0)
        self.common[layer] += level.sum(0)
        self.squares[layer] += level.square().sum((0, 2, 3))

    def attention_pattern(self, layer: int, weights: Weights) -> None:
        self.total[layer] += weights[..., self.places, self.places].double().sum(0).cpu()
        self.texts += len(weights) if layer == 0 else 0

    @property
    def common_variance_share(self) -> Float[Tensor, "layers h"]:
        """Share of the within-row score variance that is common to all texts: due to position, not to content.

        Var over i, j of the mean over texts / total variance, corrected for the bias of finitely many texts.
        """
        between = (self.common / self.texts).square().sum((-2, -1))
        within = self.squares / self.texts
        own = (self.texts * between - within) / (self.texts - 1)
        return torch.where(within > 0, own / within.clamp(min=1e-300), 0.0)


class ProfileAndMapHooks(ProfileHooks):
    """Accumulates attention mass by offset and full attention maps in one pass.

    Args:
        facts: description of the model.
        length: tokens of a text, or patches of an image.
        maps: accumulates the maps.
    """

    def __init__(self, facts: ModelInfo, length: int, maps: AttentionMaps) -> None:
        super().__init__(facts, length)
        self.maps = maps

    def attention_scores(self, layer: int, scores: Weights) -> None:
        self.maps.attention_scores(layer, scores)

    def attention_pattern(self, layer: int, weights: Weights) -> None:
        super().attention_pattern(layer, weights)
        self.maps.attention_pattern(layer, weights)


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
        seen = torch.ones(length, length).tril() if self.facts.causal else torch.ones(length, length)
        if target.slope is not None:
            fallen = seen * torch.exp(-target.slope * (i[:, None] - i).abs())
            return fallen / fallen.sum(-1, keepdim=True)
        wanted = torch.zeros_like(i) if target.offset is None else (i - target.offset).clamp(0, length - 1)
        return torch.nn.functional.one_hot(wanted, length).float()


def attention_profile(subject: ModelAdapter, sample: Sample, order: Permutation | None = None) -> AttentionProfile:
    """Measure the attention profile of each head in each text.

    Raises:
        NotApplicable: the attention weights are not observable.
    """
    return _gaze(subject, sample, order, ProfileHooks(subject.info, sample.length))


def attention_profile_and_maps(subject: ModelAdapter, sample: Sample) -> tuple[AttentionProfile, AttentionMaps]:
    """Measure attention profiles, and full attention maps of the beginnings of the texts, in one pass."""
    facts = subject.info
    maps = AttentionMaps(facts, min(MAP_LENGTH, sample.length))
    return _gaze(subject, sample, None, ProfileAndMapHooks(facts, sample.length, maps)), maps


def _gaze(subject: ModelAdapter, sample: Sample, order: Permutation | None, watch: ProfileHooks) -> AttentionProfile:
    for rows in sample.batches(subject.info):
        subject.forward(sample.inputs(rows, order), watch)
    mass, sink, distance = (
        torch.stack([torch.cat(layer) for layer in found], 1).numpy()
        for found in (watch.mass, watch.sink, watch.distance)
    )
    return AttentionProfile(watch.offsets, mass, sink, distance, watch.even, watch.uniform_first_token_mass)
