"""Attention by offset: attention mass per relative offset, on the first token, and mean attention distance."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.shapes import Weights
from ordinate.probing._adapter import ModelAdapter, ModelInfo
from ordinate.probing.measures.samples import AccumulatingHooks, Permutation, Sample

# fewest queries that have a key at an offset, and tokens at the beginning of each text whose full maps are summed
MIN_QUERIES, MAP_LENGTH = 8, 64


@dataclass(frozen=True)
class Pairs:
    """Which pairs of a query and another key are counted, and how far apart they are.

    A query's own key is left out, since content alone decides about it, and so is the first token of a text.

    Args:
        counted: whether a pair is counted.
        distance: tokens between both; on a grid of patches, their Euclidean distance [patches].
        first_key: index of the first key that is counted.
    """

    counted: Bool[Tensor, "n n"]
    distance: Float[Tensor, "n n"]
    first_key: int

    @classmethod
    def of(cls, facts: ModelInfo, length: int) -> "Pairs":
        """Pairs of a model's tokens, or patches.

        Args:
            facts: description of the model.
            length: tokens of a text, or patches of an image.
        """
        i, columns = torch.arange(length), 1 if facts.grid is None else facts.grid[1]
        apart = (i[:, None] - i).double()
        if facts.grid is not None:
            rows, own = (((x[:, None] - x) ** 2).double() for x in (i // columns, i % columns))
            apart = (rows + own).sqrt()
        # class tokens and registers have no position; without them, the first token is where attention is parked
        first_key = int(facts.prefix == 0)
        counted = (i[:, None] > i) if facts.causal else (i[:, None] != i)
        return cls(counted & (i >= first_key), apart.abs(), first_key)

    @property
    def keys(self) -> Float[Tensor, "n"]:
        """Counted keys of each query."""
        return self.counted.sum(1).double()

    def tested_offsets(self) -> list[int]:
        """Offsets other than 0 that enough queries have a key at, from the farthest ahead to the farthest back."""
        length = len(self.counted)
        queries = offset_sums(self.counted.float())
        return [place - length + 1 for place in range(2 * length - 1) if queries[place] >= MIN_QUERIES]

    def to(self, device: torch.device) -> "Pairs":
        """Return the same pairs with their tensors on a device."""
        return Pairs(self.counted.to(device), self.distance.to(device), self.first_key)

    def over_queries(self, values: Float[Tensor, "*b n"]) -> Float[Tensor, "*b all_offsets"]:
        """Sum the values of the queries that have a counted key at each offset; 0 where none has.

        Args:
            values: one for each query.
        """
        length = values.shape[-1]
        offset = torch.arange(1 - length, length, device=values.device)
        first = (offset + self.first_key).clamp(min=0)
        last = (length + offset).clamp(max=length)
        summed = torch.nn.functional.pad(values.cumsum(-1), (1, 0))
        return torch.where(last > first, summed[..., last] - summed[..., first.clamp(max=length)], 0.0)

    def decaying(self, slope: float) -> Float[Tensor, "n n"]:
        """Exponentially decaying attention over the counted pairs, softmax(-slope distance); uniform at slope 0."""
        scores = torch.where(self.counted, -slope * self.distance, -torch.inf)
        return scores.softmax(-1).nan_to_num(0.0)


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
        uniform_mass: mass at each offset under uniform attention.
        uniform_first_token_mass: mass on the first token under uniform attention.
        pairs: the counted pairs.
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
    uniform_mass: Float[ndarray, "offsets"]
    uniform_first_token_mass: float
    pairs: Pairs
    rows: Float[ndarray, "texts layers h n"]
    shares: Float[ndarray, "layers h all_offsets"]


class ProfileHooks(AccumulatingHooks):
    """Accumulates attention mass by offset.

    Args:
        facts: description of the model.
        length: tokens of a text, or patches of an image.
    """

    def __init__(self, facts: ModelInfo, length: int) -> None:
        self.front, self.pairs = facts.prefix, Pairs.of(facts, length)
        self.offsets = self.pairs.tested_offsets()
        self.found: list[dict[str, list[Tensor]]] = [{} for _ in range(facts.layers)]
        # the keys that a query sees in all: the counted ones, itself, and the first token or class tokens
        visible = self.pairs.keys + 1 + max(facts.prefix, self.pairs.first_key)
        visible[: self.pairs.first_key] = 1
        queries, even = slice(self.pairs.first_key, None), 1 / visible
        self.uniform_first_token_mass = float(even[queries].mean())
        around = self.pairs.over_queries((self.pairs.keys + 1) * even)
        self.uniform_mass = (self.pairs.over_queries(even) / around)[self.places].numpy()

    @property
    def places(self) -> Tensor:
        """Index of each tested offset among all."""
        return torch.tensor(self.offsets) + len(self.pairs.distance) - 1

    def attention_pattern(self, layer: int, weights: Weights) -> None:
        pairs, queries = self.pairs.to(weights.device), slice(self.pairs.first_key, None)
        own = weights[..., self.front :, self.front :]
        others = own * pairs.counted
        by_offset, rows = offset_sums(others), others.sum(-1, dtype=torch.float64)
        itself = own.diagonal(dim1=-2, dim2=-1).double()[..., queries]
        around = rows.clone()
        around[..., queries] += itself
        uniform = rows / pairs.keys.clamp(min=1)
        even = (pairs.decaying(0.0) * pairs.distance).sum(-1)
        total, places = rows.sum(-1).clamp(min=1e-9), self.places.to(weights.device)
        found = {
            "mass": (by_offset / pairs.over_queries(around).clamp(min=1e-9))[..., places],
            "excess": (by_offset - pairs.over_queries(uniform))[..., places],
            "first_token_mass": weights[..., self.front :, 0].double()[..., queries].mean(-1),
            "own_mass": itself.sum(-1) / around.sum(-1).clamp(min=1e-9),
            "distance": (others * pairs.distance.to(others)).sum((-2, -1), dtype=torch.float64) / total,
            "uniform_distance": (rows * even).sum(-1) / total,
            "rows": rows / total[..., None],
            "shares": by_offset / total[..., None],
        }
        for name, values in found.items():
            self.found[layer].setdefault(name, []).append(values.cpu())

    def profile(self) -> AttentionProfile:
        """Return the profile of everything that was read."""
        found = {
            name: torch.stack([torch.cat(layer[name]) for layer in self.found], 1).numpy() for name in self.found[0]
        }
        found["shares"] = found["shares"].mean(0)
        even = {"uniform_mass": self.uniform_mass, "uniform_first_token_mass": self.uniform_first_token_mass}
        return AttentionProfile(offsets=self.offsets, pairs=self.pairs, **even, **found)


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


def offset_sums(weights: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b all_offsets"]:
    """Sum over all pairs of a query and a key at each offset, from 1 - n (ahead) to n - 1 (back)."""
    length = weights.shape[-1]
    # with rows of 2 n numbers read as rows of 2 n - 1, diagonals become columns
    wide = torch.nn.functional.pad(weights.flip(-1), (0, length)).flatten(-2)[..., :-length]
    return wide.unflatten(-1, (length, 2 * length - 1)).sum(-2, dtype=torch.float64)


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
