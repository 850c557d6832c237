"""Attention by offset: attention mass per relative offset, on the first token, and mean attention distance."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.shapes import Weights
from ordinate.probing._adapter import MASKED_SCORE, ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing.measures.samples import AccumulatingHooks, Permutation, Sample

# fewest queries that have a key at an offset, and tokens at the beginning of each text whose full maps are summed
MIN_QUERIES, MAP_LENGTH = 8, 64


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which pairs of a query and another key are counted, and how far apart they are.

    A query's own key is left out, since content alone decides about it, and so is the first token of a text.

    Args:
        visible: which keys each query sees, class tokens and registers included.
        counted: whether a pair is counted.
        distance: tokens between both; on a grid of patches, their Euclidean distance [patches].
        first_key: index of the first key that is counted.
        by_offset: whether each query has a counted key at each offset, 1 or 0.
    """

    visible: Bool[Tensor, "all all"]
    counted: Bool[Tensor, "n n"]
    distance: Float[Tensor, "n n"]
    first_key: int
    by_offset: Float[Tensor, "n all_offsets"]

    @classmethod
    def of(cls, facts: ModelInfo, length: int, visible: Bool[Tensor, "all all"] | None = None) -> "Pairs":
        """Pairs of a model's tokens, or patches.

        Args:
            facts: description of the model.
            length: tokens of a text, or patches of an image.
            visible: which keys each query sees, class tokens and registers included, as in a layer with a sliding
                window; None: all, or under a causal mask all up to its own.
        """
        i, columns = torch.arange(length), 1 if facts.grid is None else facts.grid[1]
        apart = (i[:, None] - i).double()
        if facts.grid is not None:
            rows, own = (((x[:, None] - x) ** 2).double() for x in (i // columns, i % columns))
            apart = (rows + own).sqrt()
        if visible is None:
            visible = torch.ones(facts.prefix + length, facts.prefix + length, dtype=torch.bool)
            visible = visible.tril() if facts.causal else visible
        # class tokens and registers have no position; without them, the first token is where attention is parked
        first_key = int(facts.prefix == 0)
        counted = visible[facts.prefix :, facts.prefix :] & (i[:, None] != i) & (i >= first_key)
        return cls(visible, counted, apart.abs(), first_key, pairs_by_offset(counted.double()))

    @property
    def keys(self) -> Float[Tensor, "n"]:
        """Counted keys of each query."""
        return self.counted.sum(1).double()

    @property
    def uniform_mass(self) -> Float[Tensor, "all_offsets"]:
        """Mass at each offset under uniform attention, as a share of the mass not on the first token."""
        even, around = 1 / self._seen_keys, self.keys
        around[self.first_key :] += 1
        return self.over_queries(even) / self.over_queries(around * even).clamp(min=1e-9)

    @property
    def uniform_first_token_mass(self) -> float:
        """Mass on the first token under uniform attention, mean over queries."""
        first = self.visible[len(self.visible) - len(self.counted) :, 0]
        return float((first / self._seen_keys)[self.first_key :].mean())

    def tested_offsets(self) -> list[int]:
        """Offsets other than 0 that enough queries have a key at, from the farthest ahead to the farthest back."""
        length = len(self.counted)
        queries = self.by_offset.sum(0)
        return [place - length + 1 for place in range(2 * length - 1) if queries[place] >= MIN_QUERIES]

    def to(self, device: torch.device) -> "Pairs":
        """Return the same pairs with their tensors on a device."""
        visible, counted, distance = (x.to(device) for x in (self.visible, self.counted, self.distance))
        return Pairs(visible, counted, distance, self.first_key, self.by_offset.to(device))

    def over_queries(self, values: Float[Tensor, "*b n"]) -> Float[Tensor, "*b all_offsets"]:
        """Sum the values of the queries that have a counted key at each offset; 0 where none has.

        Args:
            values: one for each query.
        """
        return values @ self.by_offset

    def decaying(self, slope: float) -> Float[Tensor, "n n"]:
        """Exponentially decaying attention over the counted pairs, softmax(-slope distance); uniform at slope 0."""
        scores = torch.where(self.counted, -slope * self.distance, -torch.inf)
        return scores.softmax(-1).nan_to_num(0.0)

    @property
    def _seen_keys(self) -> Float[Tensor, "n"]:
        """Keys that each query sees in all: the counted ones, itself, and the first token or class tokens."""
        return self.visible[len(self.visible) - len(self.counted) :].sum(1).double()


@dataclass(frozen=True)
class AttentionProfile:
    """Attention profile of each head.

    Args:
        offsets: query - key; negative for keys ahead of the query [tokens].
        mass: attention mass at each offset, as a share of the mass not on the first token, over the queries that have
            a key there.
        excess: sum of the attention at each offset, less that of uniform attention to all other keys; 0 on average if
            attention does not depend on the offset.
        first_token_mass: attention mass on the first token (attention sink).
        own_mass: attention mass on the query's own token, as a share of the mass not on the first token.
        distance: mean attention distance over the other keys [tokens].
        uniform_distance: the same under uniform attention, with as much mass on other keys for each query [tokens].
        uniform_mass: mass at each offset under uniform attention to the keys that a layer sees.
        uniform_first_token_mass: mass on the first token under uniform attention.
        pairs: the counted pairs of each layer; layers with the same ones share the object.
        rows: share of each query in the mass on other keys.
        shares: distribution of the mass on other keys over all offsets, mean over texts.
    """

    offsets: list[int]
    mass: Float[ndarray, "texts layers h offsets"]
    excess: Float[ndarray, "texts layers h offsets"]
    first_token_mass: Float[ndarray, "texts layers h"]
    own_mass: Float[ndarray, "texts layers h"]
    distance: Float[ndarray, "texts layers h"]
    uniform_distance: Float[ndarray, "texts layers h"]
    uniform_mass: Float[ndarray, "layers offsets"]
    uniform_first_token_mass: Float[ndarray, "layers"]
    pairs: list[Pairs]
    rows: Float[ndarray, "texts layers h n"]
    shares: Float[ndarray, "layers h all_offsets"]


class ProfileHooks(AccumulatingHooks):
    """Accumulates attention mass by offset.

    Args:
        facts: description of the model.
        length: tokens of a text, or patches of an image.
    """

    def __init__(self, facts: ModelInfo, length: int) -> None:
        self.facts, self.length = facts, length
        self.pairs = [Pairs.of(facts, length)] * facts.layers
        self.offsets = self.pairs[0].tested_offsets()
        self.found: list[dict[str, list[Tensor]]] = [{} for _ in range(facts.layers)]

    def attention_scores(self, layer: int, scores: Weights) -> None:
        """Note which keys the queries of a layer see: with a sliding window, those in it."""
        if self.found[layer]:
            return
        visible = (scores > MASKED_SCORE).flatten(0, 1).any(0).cpu()
        same = (own for own in self.pairs if torch.equal(own.visible, visible))
        self.pairs[layer] = next(same, None) or Pairs.of(self.facts, self.length, visible)

    def attention_pattern(self, layer: int, weights: Weights) -> None:
        pairs, front = self.pairs[layer].to(weights.device), self.facts.prefix
        queries, own = slice(pairs.first_key, None), weights[..., front:, front:]
        others = own * pairs.counted
        by_offset, rows = offset_sums(others), others.sum(-1, dtype=torch.float64)
        itself = own.diagonal(dim1=-2, dim2=-1).double()[..., queries]
        around = rows.clone()
        around[..., queries] += itself
        uniform = rows / pairs.keys.clamp(min=1)
        even = (pairs.decaying(0.0) * pairs.distance).sum(-1)
        total, places = rows.sum(-1).clamp(min=1e-9), self._places.to(weights.device)
        found = {
            "mass": (by_offset / pairs.over_queries(around).clamp(min=1e-9))[..., places],
            "excess": (by_offset - pairs.over_queries(uniform))[..., places],
            "first_token_mass": weights[..., front:, 0].double()[..., queries].mean(-1),
            "own_mass": itself.sum(-1) / around.sum(-1).clamp(min=1e-9),
            "distance": (others * pairs.distance.to(others)).sum((-2, -1), dtype=torch.float64) / total,
            "uniform_distance": (rows * even).sum(-1) / total,
            "rows": rows / total[..., None],
            "shares": by_offset / total[..., None],
        }
        for name, values in found.items():
            self.found[layer].setdefault(name, []).append(values.cpu())

    def profile(self) -> AttentionProfile:
        """Return the profile of everything that was read.

        Raises:
            NotApplicable: no layer sees an offset that can be tested.
        """
        tested = {offset for own in self.pairs for offset in own.tested_offsets()}
        kept = [place for place, offset in enumerate(self.offsets) if offset in tested]
        if not kept:
            raise NotApplicable(
                f"the queries of {self.facts.name} see no keys at an offset: its windows are too small"
            )
        found = {
            name: torch.stack([torch.cat(layer[name]) for layer in self.found], 1).numpy() for name in self.found[0]
        }
        found |= {name: found[name][..., kept] for name in ("mass", "excess")}
        found["shares"] = found["shares"].mean(0)
        found["uniform_mass"] = torch.stack([own.uniform_mass[self._places] for own in self.pairs]).numpy()[:, kept]
        first = np.array([own.uniform_first_token_mass for own in self.pairs])
        offsets = [self.offsets[place] for place in kept]
        return AttentionProfile(offsets=offsets, pairs=self.pairs, uniform_first_token_mass=first, **found)

    @property
    def _places(self) -> Tensor:
        """Index of each offset among all."""
        return torch.tensor(self.offsets) + self.length - 1


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
        seen = self.seen & (own > MASKED_SCORE)
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
        super().attention_scores(layer, scores)
        self.maps.attention_scores(layer, scores)

    def attention_pattern(self, layer: int, weights: Weights) -> None:
        super().attention_pattern(layer, weights)
        self.maps.attention_pattern(layer, weights)


def offset_sums(weights: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b all_offsets"]:
    """Sum over all pairs of a query and a key at each offset, from 1 - n (ahead) to n - 1 (back)."""
    return pairs_by_offset(weights).sum(-2, dtype=torch.float64)


def pairs_by_offset(weights: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n all_offsets"]:
    """Return the pairs of each query and a key by their offset, from 1 - n (ahead) to n - 1 (back)."""
    length = weights.shape[-1]
    # with rows of 2 n numbers read as rows of 2 n - 1, diagonals become columns
    wide = torch.nn.functional.pad(weights.flip(-1), (0, length)).flatten(-2)[..., :-length]
    return wide.unflatten(-1, (length, 2 * length - 1))


def attention_profile(subject: ModelAdapter, sample: Sample, order: Permutation | None = None) -> AttentionProfile:
    """Measure the attention profile of each head in each text.

    Raises:
        NotApplicable: the attention weights are not observable.
    """
    return _profile(subject, sample, order, ProfileHooks(subject.info, sample.length))


def attention_profile_and_maps(subject: ModelAdapter, sample: Sample) -> tuple[AttentionProfile, AttentionMaps]:
    """Measure attention profiles, and full attention maps of the beginnings of the texts, in one pass."""
    facts = subject.info
    maps = AttentionMaps(facts, min(MAP_LENGTH, sample.length))
    return _profile(subject, sample, None, ProfileAndMapHooks(facts, sample.length, maps)), maps


def _profile(
    subject: ModelAdapter, sample: Sample, order: Permutation | None, watch: ProfileHooks
) -> AttentionProfile:
    return watch.read(subject, sample.passes(subject.info, order)).profile()
