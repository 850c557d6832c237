"""Residual-stream vectors at selected positions of each layer, optionally with rescaled branches."""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.shapes import Tokens
from ordinate.ops.heads import repeat_for_heads
from ordinate.probing._adapter import AttentionRecord, Hooks, ModelAdapter, ModelInfo, NotApplicable, Projection
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.activations.recording import collect
from ordinate.probing.measures.measured import Measured
from ordinate.probing.measures.samples import AccumulatingHooks, Permutation, Sample, drop_prefix, stream_keys

# most positions that are captured, and most numbers that are kept in memory
MAX_POSITIONS, MAX_NUMBERS = 64, 1 << 28

Positions = Int[Tensor, "places"]
ResidualStreams = list[Float[Tensor, "texts places width"]]
BranchRatios = Float[Tensor, "texts layers"]


@dataclass(frozen=True)
class BranchScale:
    """Scale of the attention branch and of the skip connection.

        s(x) + A(x)  ->  skip s(x) + attention A(x),    s(x) = x, or norm(x) where the skip connection carries that

    Args:
        attention: factor of the attention output.
        skip: factor of the skip connection.
        without_mask: remove the causal mask.
    """

    attention: float = 1.0
    skip: float = 1.0
    without_mask: bool = False

    @property
    def name(self) -> str:
        """What is changed, as the report says it: "attention x 2, no mask"."""
        parts = [] if self.attention == 1 else [f"attention x {self.attention:g}"]
        parts += [] if self.skip == 1 else [f"skip x {self.skip:g}" if self.skip else "no skip"]
        return ", ".join(parts + ["no mask"] * self.without_mask) or "unchanged"


class ScaledBranches(Hooks):
    """Rescales the branches of each layer.

    Args:
        subject: the model.
        dose: the scales.
    """

    def __init__(self, subject: ModelAdapter, dose: BranchScale) -> None:
        self.subject, self.dose, self.entered = subject, dose, torch.empty(0)

    def residual(self, layer: int, x: Tokens) -> None:
        if layer < self.subject.info.layers:
            self.entered = self.subject.skip_connection(layer, x)

    def attention_output(self, layer: int, a: Tokens) -> Tokens:
        # the model adds the skip itself, so (skip - 1) s(x) is added here
        return self.dose.attention * a + (self.dose.skip - 1) * self.entered


class BranchNormRatio(AccumulatingHooks):
    """The residual stream, and norm(attention output) / norm(what it is added to), averaged over positions.

    Args:
        subject: the model.
        places: the positions, not counting class tokens and registers.
    """

    def __init__(self, subject: ModelAdapter, places: Positions) -> None:
        facts = subject.info
        self.subject, self.facts, self.places = subject, facts, places
        self.kept: list[list[Tensor]] = [[] for _ in range(facts.layers + 1)]
        self.entered, self.own = torch.empty(0), torch.tensor(0.0)
        self.ratios: list[list[Tensor]] = [[] for _ in range(facts.layers)]
        self.mixed: list[list[Tensor]] = [[] for _ in range(facts.layers)]

    def residual(self, layer: int, x: Tokens) -> None:
        self.kept[layer].append(_at_positions(self.facts, self.places, x))
        if layer < self.facts.layers:
            self.entered = self._at(self.subject.skip_connection(layer, x))

    def attention_output(self, layer: int, a: Tokens) -> None:
        self.ratios[layer].append(self._mean(self._norm(self._at(a)) / self._norm(self.entered)))

    def _at(self, x: Tokens) -> Tensor:
        return drop_prefix(self.facts, x)[:, self.places]

    def _norm(self, x: Tensor) -> Tensor:
        return x.double().norm(dim=-1).clamp(min=1e-30)

    def _mean(self, values: Tensor) -> Tensor:
        return values.mean(1).cpu()


class MixingRatio(BranchNormRatio):
    """Also records the mixing ratio: the share of a vector that comes from other tokens.

        |m| / (|m| + |p|),    p = s(x) + its own part of A,    m = the part of A that comes from others

    Args:
        subject: the model.
        places: the positions.
        layers: the projections of each layer.
    Source: Kobayashi et al. 2021, https://arxiv.org/abs/2109.07152, before the norm.
    """

    def __init__(self, subject: ModelAdapter, places: Positions, layers: list[Projection]) -> None:
        super().__init__(subject, places)
        self.layers = layers

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        """Compute what each token contributes to itself: its own weight times value, projected."""
        places = self.places + self.facts.prefix
        own = seen.pattern.diagonal(dim1=-2, dim2=-1)[..., places, None]
        values = repeat_for_heads(seen.v.transpose(0, 1), seen.pattern.shape[1]).transpose(0, 1)
        # attention weights may have a wider dtype than values
        given = own * values[..., places, :]
        self.own = torch.einsum("bhnd,hdw->bnw", given, self.layers[layer].out.to(given))

    def attention_output(self, layer: int, a: Tokens) -> None:
        super().attention_output(layer, a)
        mixing, kept = self._norm(self._at(a) - self.own), self._norm(self.entered + self.own)
        self.mixed[layer].append(self._mean(mixing / (mixing + kept)))


def choose_positions(sample: Sample, facts: ModelInfo) -> Positions:
    """Choose evenly spaced positions; the first token of a text is left out."""
    first = max(1, sample.fixed) if sample.grid is None else 0
    rows = sample.count * facts.width * (facts.layers + 1)
    most = max(8, min(MAX_POSITIONS, MAX_NUMBERS // rows, sample.length - first))
    return torch.linspace(first, sample.length - 1, most).round().long().unique()


def residual_at_positions(
    subject: ModelAdapter,
    sample: Sample,
    places: Positions,
    dose: BranchScale | None = None,
    order: Permutation | None = None,
) -> ResidualStreams:
    """Residual-stream vectors at the input of each layer and after the last.

    Args:
        subject: the model.
        sample: texts or images.
        places: the positions that are captured.
        dose: scales of the branches; None: unchanged.
        order: permutation of the tokens; None: identity.
    """
    facts, visible = subject.info, None
    if dose is not None and dose.without_mask:
        visible = torch.ones(1, sample.length, sample.length, dtype=torch.bool)
    changed = subject if dose is None else InterventionAdapter(subject, ScaledBranches(subject, dose))
    passes = sample.passes(facts, order, mask=visible)
    return list(collect(changed, passes, stream_keys(facts), partial(_at_positions, facts, places)).values())


def residual_and_branch_ratios(
    subject: ModelAdapter, sample: Sample, places: Positions
) -> Measured[tuple[ResidualStreams, dict[str, BranchRatios]]]:
    """Residual-stream vectors, and norm and mixing ratios of the attention branch where it is observable.

    Args:
        subject: the model.
        sample: texts or images; read once.
        places: the positions that are captured.
    """
    facts, missing = subject.info, dict[str, str]()

    def mixed() -> BranchNormRatio:
        layers = [subject.projection(layer) for layer in range(facts.layers)]
        if any(own.output_norm for own in layers):
            raise NotApplicable(
                f"{facts.name} normalises the attention output before it is added, so that it is no sum of what each "
                "token gives"
            )
        if any(own.output_gate for own in layers):
            raise NotApplicable(
                f"{facts.name} multiplies the outputs of its heads by gates of the token that attends, so that what "
                "each token gives is not known from the patterns"
            )
        return MixingRatio(subject, places, layers)

    # from the most to the least informative hooks: fall back if the model does not expose one
    for name, make in (
        ("mixing ratio", mixed),
        ("norm of the attention output", lambda: BranchNormRatio(subject, places)),
    ):
        try:
            watch = make().read(subject, sample.passes(facts))
        except NotApplicable as reason:
            missing[name] = str(reason)
            continue
        found = {"norm of attention output / norm of residual": watch.ratios, "mixing ratio": watch.mixed}
        ratios = {what: torch.stack([torch.cat(own) for own in each], 1) for what, each in found.items() if all(each)}
        if not ratios:
            missing[name] = "its attention output is not observable"
        return Measured(([torch.cat(parts) for parts in watch.kept], ratios), missing)
    return Measured((residual_at_positions(subject, sample, places), {}), missing)


def position_directions(
    x: Float[Tensor, "texts places width"], energy: float, most: int
) -> Float[Tensor, "some width"]:
    """Principal directions of the position means: as few as hold a share `energy` of the variance, at most `most`."""
    means = x.double().mean(0)
    _, sizes, rows = torch.linalg.svd(means - means.mean(0), full_matrices=False)
    share = sizes.square().cumsum(0) / sizes.square().sum().clamp(min=1e-300)
    return rows[: min(most, int((share < energy).sum()) + 1)]


def _at_positions(facts: ModelInfo, places: Positions, x: Tokens) -> Float[Tensor, "texts places width"]:
    # half-precision streams are widened, float64 ones kept
    wide = torch.promote_types(x.dtype, torch.float32)
    return drop_prefix(facts, x)[:, places].to(wide).cpu()
