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


class Added(Kept):
    """Also tells how long what attention adds is beside what it is added to: |A| / |x|, on average over places.

    Args:
        facts: the model.
        places: which.
    """

    def __init__(self, facts: Facts, places: Places) -> None:
        super().__init__(facts, places)
        self.entered, self.own = torch.empty(0), torch.tensor(0.0)
        self.ratios: list[list[Tensor]] = [[] for _ in range(facts.layers)]
        self.mixed: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def stream(self, layer: int, x: Tokens) -> None:
        """Keep it, and what attention is to be added to."""
        super().stream(layer, x)
        self.entered = self._at(x)

    def branch(self, layer: int, a: Tokens) -> None:
        """Compare both."""
        self.ratios[layer].append(self._mean(self._norm(self._at(a)) / self._norm(self.entered)))

    def _at(self, x: Tokens) -> Tensor:
        return tokens_of(self.facts, x)[:, self.places]

    def _norm(self, x: Tensor) -> Tensor:
        return x.double().norm(dim=-1).clamp(min=1e-30)

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
        places = self.places + self.facts.prefix
        own = seen.weights.diagonal(dim1=-2, dim2=-1)[..., places, None]
        values = for_heads(seen.v.transpose(0, 1), seen.weights.shape[1]).transpose(0, 1)
        # weights may be wider than values
        given = own * values[..., places, :]
        self.own = torch.einsum("bhnd,hdw->bnw", given, self.layers[layer].out.to(given))

    def branch(self, layer: int, a: Tokens) -> None:
        """Compare what is kept with what comes from others."""
        super().branch(layer, a)
        mixing, kept = self._norm(self._at(a) - self.own), self._norm(self.entered + self.own)
        self.mixed[layer].append(self._mean(mixing / (mixing + kept)))


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


def kept_and_added(
    subject: Subject, sample: Sample, places: Places, reasons: dict[str, str]
) -> tuple[Streams, dict[str, Ratios]]:
    """The stream as it enters each layer and as it leaves the last; and what attention adds, where that is seen.

    Args:
        subject: the model.
        sample: what it reads, once.
        places: which of it are kept.
        reasons: is told why something was not measured.
    """
    facts = subject.facts

    def mixed() -> Added:
        return Mixed(facts, places, [subject.projection(layer) for layer in range(facts.layers)])

    # from what tells most to what tells least
    for name, make in (("mixing ratio", mixed), ("what attention adds", lambda: Added(facts, places))):
        try:
            watch = make()
            _read(subject, sample, watch)
        except Unfit as reason:
            reasons[name] = str(reason)
            continue
        found = {"what attention adds, beside what it is added to": watch.ratios, "mixing ratio": watch.mixed}
        ratios = {what: torch.stack([torch.cat(own) for own in each], 1) for what, each in found.items() if all(each)}
        if not ratios:
            reasons[name] = "what its attention adds could not be seen"
        return [torch.cat(parts) for parts in watch.kept], ratios
    return kept(subject, sample, places), {}


def directions(x: Float[Tensor, "texts places width"], energy: float, most: int) -> Float[Tensor, "some width"]:
    """The directions in which the means of places differ: as few as hold so much of it."""
    means = x.double().mean(0)
    _, sizes, rows = torch.linalg.svd(means - means.mean(0), full_matrices=False)
    share = sizes.square().cumsum(0) / sizes.square().sum().clamp(min=1e-300)
    return rows[: min(most, int((share < energy).sum()) + 1)]


def _read(subject: Subject, sample: Sample, watch: Watch) -> None:
    for rows in sample.parts(subject.facts):
        subject.read(sample.given(rows), watch)
