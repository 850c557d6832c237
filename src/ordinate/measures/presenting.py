"""Texts and images as a probe gives them to a model: whole, or with places exchanged, and no more than it can pay."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ordinate.checks import need
from ordinate.measures import patches
from ordinate.probe import Material
from ordinate.shapes import Tokens
from ordinate.subject import Facts, Inputs, Reading, Subject, Watch

# more at once are no faster: what they need falls out of the processor's memory
TOKENS_AT_ONCE, LOGITS_AT_ONCE = 512, 1 << 26
# texts are left out down to the first number, then shortened, then left out down to the second
SOME, FEWEST, SHORTEST = 16, 4, 64
CHANGES = 2 / 3  # of the budget, spent once more: what reading with something changed may cost

Order = Int[Tensor, "texts n"]
"""Which token of the text stands at each place."""


@dataclass(frozen=True)
class Passes:
    """How many times texts are read.

    Args:
        whole: from the tokens to the logits.
        headless: to the end of the last layer.
    """

    whole: float = 0.0
    headless: float = 0.0

    def operations(self, facts: Facts, length: int) -> float:
        """About how many multiplications and additions they take for one text of this length."""
        layers = 12 * facts.width**2 + 2 * facts.width * length
        head = facts.width * facts.vocabulary
        return 2.0 * length * (self.whole * (facts.layers * layers + head) + self.headless * facts.layers * layers)


@dataclass(frozen=True, eq=False)
class Sample:
    """What a probe reads of the material.

    Args:
        ids: texts; None of images.
        images: pixels; None of texts.
        fixed: tokens in front that stay where they are: the first token of a text.
        grid: rows and columns of patches of an image.
        prefix: tokens in front of an image's patches: a class token, registers.
        left_out: what of the material it does not hold and why, a sentence; empty: nothing.
    """

    ids: Int[Tensor, "texts n"] | None
    images: Float[Tensor, "texts channels height width"] | None
    fixed: int
    grid: tuple[int, int] | None
    prefix: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def texts(self) -> int:
        """How many texts or images."""
        return len(self._held)

    @property
    def length(self) -> int:
        """Tokens of a text, or patches of an image."""
        return self.grid[0] * self.grid[1] if self.grid else self._held.shape[1]

    @property
    def noun(self) -> str:
        """What there are several of."""
        return "texts" if self.images is None else "images"

    @property
    def size(self) -> str:
        """How much it is, in words."""
        return f"{self.texts} {self.noun} of {self.length} {'tokens' if self.images is None else 'patches'}"

    def first(self, texts: int, length: int | None = None) -> "Sample":
        """The first texts, and of each its beginning."""
        ids = None if self.ids is None else self.ids[:texts, : length or self.ids.shape[1]]
        images = None if self.images is None else self.images[:texts]
        return Sample(ids, images, self.fixed, self.grid, self.prefix)

    def parts(self, facts: Facts) -> Iterator[slice]:
        """The texts some at a time, as memory allows."""
        at_once = min(TOKENS_AT_ONCE, LOGITS_AT_ONCE // max(1, facts.vocabulary))
        rows = max(1, at_once // self.length)
        return (slice(start, min(start + rows, self.texts)) for start in range(0, self.texts, rows))

    def given(
        self,
        rows: slice,
        order: Order | None = None,
        *,
        tokens: bool = True,
        positions: bool = False,
        visible: Bool[Tensor, "#texts n n"] | None = None,
    ) -> Inputs:
        """The inputs of these texts, what is in them moved about.

        Args:
            rows: which texts.
            order: which token stands at each place; None: each its own.
            tokens: whether tokens, or patches, move.
            positions: whether each takes its position with it.
            visible: who sees whom after moving; None: as the model does.
        """
        own = None if order is None else order[rows]
        moved = own if tokens else None
        ids = self.ids if self.ids is None else self.ids[rows]
        images = self.images if self.images is None else self.images[rows]
        if moved is not None:
            ids = None if ids is None else ids.gather(1, moved)
            images = None if images is None else patches.moved(images, moved, self.grid or (1, 1))
        seen = visible if visible is None or len(visible) == 1 else visible[rows]
        return Inputs(ids, self._places(own) if positions and own is not None else None, seen, images)

    @property
    def _held(self) -> Tensor:
        held = self.images if self.ids is None else self.ids
        if held is None:
            raise ValueError("a model reads something; got neither texts nor images; give one of them")
        return held

    def _places(self, order: Order) -> Int[Tensor, "texts tokens"]:
        """The positions of all tokens; those in front of patches keep theirs."""
        front = torch.arange(self.prefix).expand(len(order), -1)
        return torch.cat([front, order + self.prefix], 1)


def sample(facts: Facts, material: Material, passes: Passes, told: str = "it reads", share: float = 1.0) -> Sample:
    """As much of the material as can be read so many times: fewer texts first, then shorter ones.

    What is left out depends on the sizes of the model and of the material and on its budget, never on the machine.

    Args:
        facts: the model.
        material: what there is.
        passes: how many times it is read.
        told: what reads it, for the sentence about what is left out.
        share: of the budget that this may cost.
    """
    if material.ids is None:
        whole = Sample(None, material.images, 0, facts.grid, facts.prefix)
        need(whole.texts > 1, "an interval needs two images or more", f"got {whole.texts}", "give more images")
    else:
        whole = Sample(material.ids, None, int(facts.first_token is not None), None)
        came = f"got {whole.texts} of {whole.length}"
        need(whole.texts > 1 and whole.length >= 8, "a probe reads two texts of 8 tokens or more", came, "give more")
    texts, length, budget = whole.texts, whole.length, share * material.budget
    cost = [passes.operations(facts, length) for length in range(whole.length + 1)]
    texts = max(min(whole.texts, SOME), min(whole.texts, int(budget // cost[whole.length])))
    if material.ids is not None:
        while length > SHORTEST and texts * cost[length] > budget:
            length -= 1
    texts = max(min(texts, FEWEST), min(texts, int(budget // cost[length])))
    if (texts, length) == (whole.texts, whole.length):
        return whole
    times = whole.texts * cost[whole.length] / budget
    why = (
        f"Of {whole.texts} {whole.noun} of {whole.length} {told} {texts} of {length}: all would cost {times:.1f} "
        f"times the {budget:.1e} operations that it may ({'' if share == 1 else 'a share of '}--budget)."
    )
    return replace(whole.first(texts, length), left_out=(why,))


def beginnings(material: Material, length: int) -> Material:
    """The first tokens of each text; images as they are."""
    return material if material.ids is None else replace(material, ids=material.ids[:, :length])


def looked_at(facts: Facts, material: Material, passes: Passes) -> Sample:
    """What of the material is only looked at, where something is changed besides: as much as the budget pays for."""
    return sample(facts, material, passes, "what is only looked at is read in")


def changed(facts: Facts, material: Material, passes: Passes) -> Sample:
    """What is read with something changed, again and again: as much as two thirds of the budget pay for."""
    return sample(facts, material, passes, "what is changed is read in", CHANGES)


def shuffled(sample: Sample, window: int, generator: torch.Generator) -> Order:
    """A random order inside consecutive windows of so many tokens, for each text; fixed tokens stay."""
    noise = torch.rand(sample.texts, sample.length, generator=generator)
    places = torch.arange(sample.length)
    group = (places - sample.fixed) // window
    # sorting by (window, noise) permutes inside each window
    return torch.where(places < sample.fixed, places - sample.length, noise + group).argsort(1)


def carried(facts: Facts, order: Order) -> Bool[Tensor, "texts n n"] | None:
    """Who sees whom when each token takes with it what it saw; None where all see all."""
    return order[:, None] <= order[:, :, None] if facts.causal else None


def undone(moved: Tokens, order: Order) -> Tokens:
    """What was computed of moved tokens, each back in its place."""
    return moved.gather(1, order.argsort(1)[..., None].expand_as(moved))


def tokens_of(facts: Facts, stream: Tokens) -> Float[Tensor, "b _ width"]:
    """The rows of a residual stream that stand somewhere: class tokens and registers left out."""
    return stream[:, facts.prefix :]


class Streams(Watch):
    """Hands the stream of each layer on.

    Args:
        facts: the model.
    """

    headless = True

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.kept: dict[int, list[Tokens]] = {}

    def stream(self, layer: int, x: Tokens) -> None:
        """Keep it."""
        self.kept.setdefault(layer, []).append(tokens_of(self.facts, x).double())


def streams(subject: Subject, inputs: Inputs) -> list[Tokens]:
    """The residual stream as it enters each layer, and as it leaves the last; short texts only."""
    watch = Streams(subject.facts)
    subject.read(inputs, watch)
    return [torch.cat(parts) for parts in watch.kept.values()]


def last(subject: Subject, inputs: Inputs) -> tuple[Reading, Tokens]:
    """What came out, and the residual stream in the end without what stands nowhere."""
    reading = subject.read(inputs)
    return reading, tokens_of(subject.facts, reading.stream).double()
