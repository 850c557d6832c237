"""Samples for probes: batching, permutation of tokens or patches, and subsampling to a compute budget."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.shapes import Tokens
from ordinate.probing._adapter import ForwardOutput, Hooks, Inputs, ModelAdapter, ModelInfo
from ordinate.probing._probe import ProbeData
from ordinate.probing.activations.names import lacking_activation
from ordinate.probing.activations.recording import Reduce, collect
from ordinate.probing.measures import image_patches

# batch limits [tokens, logits]: larger batches are no faster, as they exceed the processor's cache
BATCH_TOKENS, BATCH_LOGITS = 512, 1 << 26
# subsampling: drop texts down to SOME, then shorten them down to SHORTEST tokens, then drop texts down to FEWEST
PREFERRED_TEXTS, MIN_TEXTS, MIN_LENGTH = 16, 4, 64
INTERVENTION_SHARE = 2 / 3  # share of the budget that passes under intervention may cost, in addition

Permutation = Int[Tensor, "texts n"]
"""Index of the token (or patch) that is moved to each position."""


@dataclass(frozen=True)
class ForwardBudget:
    """Number of forward passes over the texts.

    Args:
        with_logits: passes up to the logits.
        without_logits: passes up to the end of the last layer, without logits.
    """

    with_logits: float = 0.0
    without_logits: float = 0.0

    def operations(self, facts: ModelInfo, length: int) -> float:
        """Approximate multiplications and additions for one text of this length."""
        layers = 12 * facts.width**2 + 2 * facts.width * length
        head = facts.width * facts.vocabulary
        return (
            2.0
            * length
            * (self.with_logits * (facts.layers * layers + head) + self.without_logits * facts.layers * layers)
        )


@dataclass(frozen=True, eq=False)
class Sample:
    """The texts or images that a probe reads.

    Args:
        ids: tokens of texts; None for images.
        images: pixels; None for texts.
        fixed: leading tokens that are never moved: the first token (BOS) of a text.
        grid: rows and columns of patches of an image.
        prefix: tokens before an image's patches: a class token, registers.
        subsampling_notes: sentences that say what was subsampled and why; empty: nothing.
    """

    ids: Int[Tensor, "texts n"] | None
    images: Float[Tensor, "texts channels height width"] | None
    fixed: int
    grid: tuple[int, int] | None
    prefix: int = 0
    subsampling_notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of texts or images."""
        return len(self._held)

    @property
    def length(self) -> int:
        """Tokens of a text, or patches of an image."""
        return self.grid[0] * self.grid[1] if self.grid else self._held.shape[1]

    @property
    def noun(self) -> str:
        """'texts' or 'images'."""
        return "texts" if self.images is None else "images"

    @property
    def description(self) -> str:
        """Size in words: '64 texts of 128 tokens'."""
        return f"{self.count} {self.noun} of {self.length} {'tokens' if self.images is None else 'patches'}"

    def truncated(self, texts: int, length: int | None = None) -> "Sample":
        """Return the first texts, each truncated to `length` tokens."""
        ids = None if self.ids is None else self.ids[:texts, : length or self.ids.shape[1]]
        images = None if self.images is None else self.images[:texts]
        return Sample(ids, images, self.fixed, self.grid, self.prefix)

    def batches(self, facts: ModelInfo) -> Iterator[slice]:
        """Yield the slices of the batches."""
        at_once = min(BATCH_TOKENS, BATCH_LOGITS // max(1, facts.vocabulary))
        rows = max(1, at_once // self.length)
        return (slice(start, min(start + rows, self.count)) for start in range(0, self.count, rows))

    def inputs(
        self,
        rows: slice,
        permutation: Permutation | None = None,
        *,
        tokens: bool = True,
        positions: bool = False,
        mask: Bool[Tensor, "#texts n n"] | None = None,
    ) -> Inputs:
        """Build the model inputs of a batch, optionally permuted.

        Args:
            rows: the texts of the batch.
            order: the permutation; None: identity.
            tokens: permute tokens or patches.
            positions: permute position ids.
            visible: attention mask after the permutation (True: visible); None: the model's own.
        """
        own = None if permutation is None else permutation[rows]
        moved = own if tokens else None
        ids = self.ids if self.ids is None else self.ids[rows]
        images = self.images if self.images is None else self.images[rows]
        if moved is not None:
            ids = None if ids is None else ids.gather(1, moved)
            images = None if images is None else image_patches.permute_patches(images, moved, self.grid or (1, 1))
        seen = mask if mask is None or len(mask) == 1 else mask[rows]
        return Inputs(ids, self._places(own) if positions and own is not None else None, seen, images)

    def passes(
        self,
        facts: ModelInfo,
        permutation: Permutation | None = None,
        *,
        mask: Bool[Tensor, "#texts n n"] | None = None,
    ) -> Iterator[Inputs]:
        """Yield the inputs of the forward pass of each batch, optionally permuted."""
        return (self.inputs(rows, permutation, mask=mask) for rows in self.batches(facts))

    @property
    def _held(self) -> Tensor:
        held = self.images if self.ids is None else self.ids
        if held is None:
            raise ValueError("a sample needs texts or images; got neither; pass one of them")
        return held

    def _places(self, order: Permutation) -> Int[Tensor, "texts tokens"]:
        """Position ids of all tokens; tokens before the patches keep theirs."""
        front = torch.arange(self.prefix).expand(len(order), -1)
        return torch.cat([front, order + self.prefix], 1)


def subsample(
    facts: ModelInfo, material: ProbeData, passes: ForwardBudget, purpose: str = "it uses", share: float = 1.0
) -> Sample:
    """Subsample the material to the compute budget: fewer texts first, then shorter ones.

    The result depends on the sizes of model and material and on the budget, never on the machine.

    Args:
        facts: description of the model.
        material: all available texts or images.
        passes: number of forward passes planned.
        purpose: start of the sentence that reports the subsampling: "observations use".
        share: share of the budget that may be spent.
    """
    if material.ids is None:
        whole = Sample(None, material.images, 0, facts.grid, facts.prefix)
        need(
            whole.count > 1,
            "a confidence interval needs two images or more",
            f"got {whole.count}",
            "pass more images",
        )
    else:
        whole = Sample(material.ids, None, int(facts.first_token is not None), None)
        came = f"got {whole.count} of {whole.length}"
        need(
            whole.count > 1 and whole.length >= 8,
            "a probe needs two texts of 8 tokens or more",
            came,
            "pass more or longer texts",
        )
    texts, length, budget = whole.count, whole.length, share * material.budget
    cost = [passes.operations(facts, length) for length in range(whole.length + 1)]
    texts = max(min(whole.count, PREFERRED_TEXTS), min(whole.count, int(budget // cost[whole.length])))
    if material.ids is not None:
        while length > MIN_LENGTH and texts * cost[length] > budget:
            length -= 1
    texts = max(min(texts, MIN_TEXTS), min(texts, int(budget // cost[length])))
    if (texts, length) == (whole.count, whole.length):
        return whole
    times = whole.count * cost[whole.length] / budget
    why = (
        f"Of {whole.count} {whole.noun} of {whole.length} {purpose} {texts} of {length}: all would cost {times:.1f} "
        f"times the budget of {budget:.1e} operations ({'' if share == 1 else 'a share of '}--budget)."
    )
    return replace(whole.truncated(texts, length), subsampling_notes=(why,))


def truncated(material: ProbeData, length: int) -> ProbeData:
    """Truncate each text to its first tokens; images are unchanged."""
    return material if material.ids is None else replace(material, ids=material.ids[:, :length])


def observation_sample(facts: ModelInfo, material: ProbeData, passes: ForwardBudget) -> Sample:
    """Subsample for passes that only observe: the whole budget."""
    return subsample(facts, material, passes, "passes that only observe use")


def intervention_sample(facts: ModelInfo, material: ProbeData, passes: ForwardBudget) -> Sample:
    """Subsample for passes under intervention: two thirds of the budget, in addition."""
    return subsample(facts, material, passes, "passes under intervention use", INTERVENTION_SHARE)


def random_permutation(sample: Sample, window: int, generator: torch.Generator) -> Permutation:
    """Draw a random permutation within consecutive windows of each text; fixed tokens stay in place."""
    noise = torch.rand(sample.count, sample.length, generator=generator)
    places = torch.arange(sample.length)
    group = (places - sample.fixed) // window
    # sorting by (window, noise) permutes inside each window
    return torch.where(places < sample.fixed, places - sample.length, noise + group).argsort(1)


def permuted_mask(facts: ModelInfo, order: Permutation) -> Bool[Tensor, "texts n n"] | None:
    """Causal mask permuted along with the tokens; None for bidirectional models."""
    return order[:, None] <= order[:, :, None] if facts.causal else None


def unpermuted(moved: Tokens, order: Permutation) -> Tokens:
    """Invert the permutation on outputs."""
    return moved.gather(1, order.argsort(1)[..., None].expand_as(moved))


def drop_prefix(facts: ModelInfo, stream: Tokens) -> Float[Tensor, "b _ width"]:
    """Drop class tokens and registers from a residual stream."""
    return stream[:, facts.prefix :]


Series = TypeVar("Series", bound="AccumulatingHooks")


class AccumulatingHooks(Hooks):
    """Hooks that add up what they see, over the forward passes of one series.

    What `record` can keep, one activation reduced by itself, needs no hooks of its own. These are for sums over
    texts, and for what takes several activations at a time.
    """

    skip_head = True
    _read = False

    def read(self: Series, subject: ModelAdapter, inputs: Iterable[Inputs]) -> Series:
        """Run the forward passes of the series; return the hooks, with what they have seen.

        Raises:
            ValueError: a second series, which would be added to the first.
        """
        name = type(self).__name__
        need(not self._read, f"{name} adds up one series of passes", "got a second", f"make a new {name} for it")
        self._read = True
        for one in inputs:
            subject.forward(one, self)
        return self


def stream_keys(facts: ModelInfo) -> list[tuple[str, int]]:
    """Names of the residual stream at the input of each layer and after the last."""
    return [*(("resid_pre", layer) for layer in range(facts.layers)), ("resid_post", facts.layers - 1)]


def by_layer(
    subject: ModelAdapter, inputs: Iterable[Inputs], name: str, reduce: Reduce
) -> Float[Tensor, "texts layers *rest"]:
    """Record an activation of all layers, reduced as it comes.

    Raises:
        NotApplicable: the model lacks it in a layer, with the model's own reason.
    """
    layers = range(subject.info.layers)
    found = collect(subject, inputs, [(name, layer) for layer in layers], reduce)
    if lacking := [layer for layer in layers if (name, layer) not in found]:
        raise lacking_activation(subject, name, lacking)
    return found.layers(name)


def residual_streams(subject: ModelAdapter, inputs: Inputs) -> list[Tokens]:
    """Residual stream at the input of each layer and after the last; keeps everything in memory, for short texts."""
    facts = subject.info
    found = collect(subject, [inputs], stream_keys(facts), lambda x: drop_prefix(facts, x).double())
    return list(found.values())


def final_residual(subject: ModelAdapter, inputs: Inputs) -> tuple[ForwardOutput, Tokens]:
    """Run the model: return its output, and the final residual stream without class tokens and registers."""
    reading = subject.forward(inputs)
    return reading, drop_prefix(subject.info, reading.residual).double()
