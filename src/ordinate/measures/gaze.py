"""Where heads look: how much of their weight is so many places back, on the first token, and anywhere."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.measures.presenting import Order, Sample
from ordinate.shapes import Weights
from ordinate.subject import Facts, Subject, Watch

# offsets that are looked at, and tokens of the texts whose whole maps are kept
FARTHEST, MAPPED = 16, 64


@dataclass(frozen=True)
class Gaze:
    """Where each head looks, on average over the queries that have all offsets around them.

    Args:
        offsets: how far back; below 0 ahead [tokens].
        mass: the weight at each offset, of the weight that is not on the first token.
        sink: the weight on the first token.
        distance: how far away it looks on average, the first token left out [tokens].
        even: the weight that each offset has where all that is seen is seen alike.
        even_sink: the same of the first token.
    """

    offsets: list[int]
    mass: Float[ndarray, "texts layers h offsets"]
    sink: Float[ndarray, "texts layers h"]
    distance: Float[ndarray, "texts layers h"]
    even: float
    even_sink: float


class Looking(Watch):
    """Sums weights by offset, map by map.

    Args:
        facts: the model.
        length: tokens of a text, or patches of an image.
    """

    headless = True

    def __init__(self, facts: Facts, length: int) -> None:
        reach = FARTHEST if facts.grid is None else facts.grid[1] + 1
        self.reach, self.front = min(reach, length // 3), facts.prefix
        self.offsets = list(range(0 if facts.causal else -self.reach, self.reach + 1))
        # all offsets of these queries are there, and none is the first token
        self.rows = slice(self.reach + 1, length if facts.causal else length - self.reach)
        i, j = torch.arange(length)[self.rows, None], torch.arange(length)
        self.apart = (i - j).abs() * (j > 0)
        seen = (i + 1 if facts.causal else torch.full_like(i, length)).double()
        self.even, self.even_sink = float((1 / (seen - 1)).mean()), float((1 / seen).mean())
        self.mass: list[list[Tensor]] = [[] for _ in range(facts.layers)]
        self.sink: list[list[Tensor]] = [[] for _ in range(facts.layers)]
        self.distance: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def weights(self, layer: int, weights: Weights) -> None:
        """Add them up; of images class tokens are left out."""
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


class Maps:
    """The sum of whole maps of the beginnings of texts, and how far scores are the same in all of them.

    Args:
        facts: the model.
        length: tokens of a beginning.
    """

    def __init__(self, facts: Facts, length: int) -> None:
        shape = (facts.layers, facts.heads, length, length)
        self.texts, self.places = 0, slice(facts.prefix, facts.prefix + length)
        self.total, self.common = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        self.squares = torch.zeros(shape[:2], dtype=torch.float64)
        self.seen = torch.ones(length, length).tril().bool() if facts.causal else torch.ones(length, length).bool()

    def scores(self, layer: int, scores: Weights) -> None:
        """Add up what the softmax is taken of, each row less its mean over what it sees."""
        own = scores[..., self.places, self.places].double().cpu()
        # what a window hides has no score
        seen = self.seen & (own > -1e4)
        own = torch.where(seen, own, 0.0)
        level = torch.where(seen, own - own.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1), 0.0)
        self.common[layer] += level.sum(0)
        self.squares[layer] += level.square().sum((0, 2, 3))

    def weights(self, layer: int, weights: Weights) -> None:
        """Add them up."""
        self.total[layer] += weights[..., self.places, self.places].double().sum(0).cpu()
        self.texts += len(weights) if layer == 0 else 0

    @property
    def alike(self) -> Float[Tensor, "layers h"]:
        """How much of what the scores of a row differ by is the same in all texts: by place, not by content.

        Var over i, j of the mean over texts / Var over all, less what chance gives.
        """
        between = (self.common / self.texts).square().sum((-2, -1))
        within = self.squares / self.texts
        own = (self.texts * between - within) / (self.texts - 1)
        return torch.where(within > 0, own / within.clamp(min=1e-300), 0.0)


class Mapped(Looking):
    """Sums weights by offset, and adds up the maps of beginnings too.

    Args:
        facts: the model.
        length: tokens of a text, or patches of an image.
        maps: what they are added to.
    """

    def __init__(self, facts: Facts, length: int, maps: Maps) -> None:
        super().__init__(facts, length)
        self.maps = maps

    def scores(self, layer: int, scores: Weights) -> None:
        """Add them to the maps."""
        self.maps.scores(layer, scores)

    def weights(self, layer: int, weights: Weights) -> None:
        """Add them up, and to the maps."""
        super().weights(layer, weights)
        self.maps.weights(layer, weights)


@dataclass(frozen=True)
class Target:
    """Where a head in closed form looks: so far back, or the less the farther; neither: at the first token.

    Args:
        offset: how far back all its weight is [tokens].
        slope: weights fall as e^(-slope distance), as under ALiBi.
    """

    offset: int | None = None
    slope: float | None = None


class Even(Watch):
    """Lets some heads look at all alike, or where a head in closed form would.

    Args:
        heads: which, as layer and head.
        targets: for each, where its weight is. No targets: everywhere alike.
        facts: the model.
    """

    def __init__(self, facts: Facts, heads: list[tuple[int, int]], targets: list[Target] | None = None) -> None:
        self.facts, self.heads, self.targets = facts, heads, targets

    def weights(self, layer: int, weights: Weights) -> Weights | None:
        """Replace those of the heads."""
        chosen = [place for place, (own, _) in enumerate(self.heads) if own == layer]
        if not chosen:
            return None
        changed = weights.clone()
        for place in chosen:
            target = Target(slope=0.0) if self.targets is None else self.targets[place]
            changed[:, self.heads[place][1]] = self._map(weights.shape[-1], target).to(weights)
        return changed

    def _map(self, length: int, target: Target) -> Float[Tensor, "n n"]:
        i = torch.arange(length)
        seen = torch.ones(length, length).tril() if self.facts.causal else torch.ones(length, length)
        if target.slope is not None:
            fallen = seen * torch.exp(-target.slope * (i[:, None] - i).abs())
            return fallen / fallen.sum(-1, keepdim=True)
        wanted = torch.zeros_like(i) if target.offset is None else (i - target.offset).clamp(0, length - 1)
        return torch.nn.functional.one_hot(wanted, length).float()


def looked(subject: Subject, sample: Sample, order: Order | None = None) -> Gaze:
    """Where each head looks, in each text.

    Raises:
        Unfit: its weights cannot be watched.
    """
    return _gaze(subject, sample, order, Looking(subject.facts, sample.length))


def looked_and_mapped(subject: Subject, sample: Sample) -> tuple[Gaze, Maps]:
    """Where each head looks in each text, and whole maps of the beginnings of the texts, in one pass."""
    facts = subject.facts
    maps = Maps(facts, min(MAPPED, sample.length))
    return _gaze(subject, sample, None, Mapped(facts, sample.length, maps)), maps


def _gaze(subject: Subject, sample: Sample, order: Order | None, watch: Looking) -> Gaze:
    for rows in sample.parts(subject.facts):
        subject.read(sample.given(rows, order), watch)
    mass, sink, distance = (
        torch.stack([torch.cat(layer) for layer in found], 1).numpy()
        for found in (watch.mass, watch.sink, watch.distance)
    )
    return Gaze(watch.offsets, mass, sink, distance, watch.even, watch.even_sink)
