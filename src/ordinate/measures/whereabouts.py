"""The residual stream at some places, layer by layer, while its sums are weighted anew or parts of it cut out."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.measures.presenting import Order, Sample, tokens_of
from ordinate.ops.heads import for_heads
from ordinate.shapes import Tokens
from ordinate.subject import Attended, Facts, Projection, Subject, Unfit, Watch

# places that are looked at, and numbers that may be held
PLACES, HELD = 64, 1 << 28

Places = Int[Tensor, "places"]
Streams = list[Float[Tensor, "texts places width"]]
Ratios = Float[Tensor, "texts layers"]


@dataclass(frozen=True)
class Dose:
    """How strongly what attention adds, and what it is added to, enter their sum.

        x + A(x)  ->  skip x + attention A(x)

    Args:
        attention: multiplies what attention adds.
        skip: multiplies what it is added to.
        blind: whether everyone sees everyone: no mask tells the order.
    """

    attention: float = 1.0
    skip: float = 1.0
    blind: bool = False

    @property
    def name(self) -> str:
        """In words."""
        parts = [] if self.attention == 1 else [f"attention x {self.attention:g}"]
        parts += [] if self.skip == 1 else [f"skip x {self.skip:g}" if self.skip else "skip severed"]
        return ", ".join(parts + ["no mask"] * self.blind) or "as it is"


class Kept(Watch):
    """Keeps the stream at some places.

    Args:
        facts: the model.
        places: which, tokens in front of patches not counted.
    """

    headless = True

    def __init__(self, facts: Facts, places: Places) -> None:
        self.facts, self.places = facts, places
        self.kept: list[list[Tensor]] = [[] for _ in range(facts.layers + 1)]

    def stream(self, layer: int, x: Tokens) -> None:
        """Keep it."""
        wide = torch.promote_types(x.dtype, torch.float32)
        self.kept[layer].append(tokens_of(self.facts, x)[:, self.places].to(wide).cpu())


class Weighted(Kept):
    """Keeps the stream of a model whose sums are weighted anew in each layer.

    Args:
        facts: the model.
        places: which.
        dose: the weights.
    """

    def __init__(self, facts: Facts, places: Places, dose: Dose) -> None:
        super().__init__(facts, places)
        self.dose, self.entered = dose, torch.empty(0)

    def stream(self, layer: int, x: Tokens) -> None:
        """Keep it, and what attention is to be added to."""
        super().stream(layer, x)
        self.entered = x

    def branch(self, layer: int, a: Tokens) -> Tokens:
        """What must be added so that the sum is the weighted one."""
        return self.dose.attention * a + (self.dose.skip - 1) * self.entered


class Added(Watch):
    """How long what attention adds is beside what it is added to: |A| / |x|, on average over places.

    Args:
        facts: the model.
        places: which.
    """

    headless = True

    def __init__(self, facts: Facts, places: Places) -> None:
        self.facts, self.places = facts, places
        self.entered, self.own = torch.empty(0), torch.tensor(0.0)
        self.ratios: list[list[Tensor]] = [[] for _ in range(facts.layers)]
        self.mixed: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def stream(self, layer: int, x: Tokens) -> None:
        """Remember it."""
        self.entered = x

    def branch(self, layer: int, a: Tokens) -> None:
        """Compare both."""
        self.ratios[layer].append(self._mean(self._norm(a) / self._norm(self.entered)))

    def _norm(self, x: Tensor) -> Tensor:
        return tokens_of(self.facts, x)[:, self.places].double().norm(dim=-1).clamp(min=1e-30)

    def _mean(self, values: Tensor) -> Tensor:
        return values.mean(1).cpu()


class Mixed(Added):
    """Also how much of a vector comes from other tokens: the mixing ratio.

        |m| / (|m| + |p|),    p = x + its own part of A,    m = the part of A that comes from others

    Args:
        facts: the model.
        places: which.
        layers: the matrices of each layer.
    Source: Kobayashi et al. 2021, https://arxiv.org/abs/2109.07152, before the norm.
    """

    def __init__(self, facts: Facts, places: Places, layers: list[Projection]) -> None:
        super().__init__(facts, places)
        self.layers = layers

    def attended(self, layer: int, seen: Attended) -> None:
        """Remember what each token gives itself."""
        own = seen.weights.diagonal(dim1=-2, dim2=-1)[..., None]
        values = for_heads(seen.v.transpose(0, 1), seen.weights.shape[1]).transpose(0, 1)
        # weights may be wider than values
        given = own * values
        self.own = torch.einsum("bhnd,hdw->bnw", given, self.layers[layer].out.to(given))

    def branch(self, layer: int, a: Tokens) -> None:
        """Compare what is kept with what comes from others."""
        super().branch(layer, a)
        mixing, kept = self._norm(a - self.own), self._norm(self.entered + self.own)
        self.mixed[layer].append(self._mean(mixing / (mixing + kept)))


class Without(Watch):
    """Cuts directions out of the stream that enters a layer.

    Args:
        layer: which.
        directions: orthonormal rows.
        middle: what the stream is taken from before it is cut.
    """

    def __init__(self, layer: int, directions: Float[Tensor, "some width"], middle: Float[Tensor, "width"]) -> None:
        self.layer, self.directions, self.middle = layer, directions, middle

    def stream(self, layer: int, x: Tokens) -> Tokens | None:
        """What is left of it."""
        if layer != self.layer:
            return None
        along = self.directions.to(x)
        return x - (x - self.middle.to(x)) @ along.T @ along


def places_of(sample: Sample, facts: Facts) -> Places:
    """Some places, evenly spread; the first token of a text stands for none."""
    first = max(1, sample.fixed) if sample.grid is None else 0
    rows = sample.texts * facts.width * (facts.layers + 1)
    most = max(8, min(PLACES, HELD // rows, sample.length - first))
    return torch.linspace(first, sample.length - 1, most).round().long().unique()


def kept(
    subject: Subject, sample: Sample, places: Places, dose: Dose | None = None, order: Order | None = None
) -> Streams:
    """The stream as it enters each layer and as it leaves the last.

    Args:
        subject: the model.
        sample: what it reads.
        places: which of it are kept.
        dose: how sums are weighted; None: as they are.
        order: which token stands at each place; None: each its own.
    """
    facts, visible = subject.facts, None
    if dose is not None and dose.blind:
        visible = torch.ones(1, sample.length, sample.length, dtype=torch.bool)
    watch = Kept(facts, places) if dose is None else Weighted(facts, places, dose)
    for rows in sample.parts(facts):
        subject.read(sample.given(rows, order, visible=visible), watch)
    return [torch.cat(parts) for parts in watch.kept]


def added(subject: Subject, sample: Sample, places: Places, reasons: dict[str, str]) -> tuple[Ratios, Ratios | None]:
    """How much attention adds in each layer, and the mixing ratio where it can be told."""
    facts = subject.facts
    try:
        watch: Added = Mixed(facts, places, [subject.projection(layer) for layer in range(facts.layers)])
        _read(subject, sample, watch)
    except Unfit as reason:
        reasons["mixing ratio"] = str(reason)
        watch = Added(facts, places)
        _read(subject, sample, watch)
    ratios, mixed = (
        torch.stack([torch.cat(own) for own in found], 1) if all(found) else None
        for found in (watch.ratios, watch.mixed)
    )
    if ratios is None:
        raise Unfit("what its attention adds could not be seen")
    return ratios, mixed


def directions(x: Float[Tensor, "texts places width"], energy: float, most: int) -> Float[Tensor, "some width"]:
    """The directions in which the means of places differ: as few as hold so much of it."""
    means = x.double().mean(0)
    _, sizes, rows = torch.linalg.svd(means - means.mean(0), full_matrices=False)
    share = sizes.square().cumsum(0) / sizes.square().sum().clamp(min=1e-300)
    return rows[: min(most, int((share < energy).sum()) + 1)]


def _read(subject: Subject, sample: Sample, watch: Watch) -> None:
    for rows in sample.parts(subject.facts):
        subject.read(sample.given(rows), watch)
