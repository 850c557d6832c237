"""Position retention: position information in the residual stream by layer, and the branches that carry it."""

import time
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.finding import Chart, Estimate, Finding, Line
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.ops.linear_readout import nearest_mean_accuracy
from ordinate.ops.stats.variance_components import position_share
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import (
    format_percent,
    format_value,
    mean_estimate,
    mean_line,
    too_few_samples,
)
from ordinate.probing.measures.linear_probes import linear_probes
from ordinate.probing.measures.perturbation_loss import metric_for
from ordinate.probing.measures.residual_stream import (
    BranchRatios,
    BranchScale,
    ResidualStreams,
    choose_positions,
    residual_and_branch_ratios,
    residual_at_positions,
)
from ordinate.probing.measures.samples import (
    ForwardBudget,
    Sample,
    intervention_sample,
    observation_sample,
    random_permutation,
)
from ordinate.probing.measures.subspace_ablation import ablate_position_subspace

BRANCH_SCALES = (
    BranchScale(0.25),
    BranchScale(4.0),
    BranchScale(16.0),
    BranchScale(skip=0.5),
    BranchScale(skip=0.0),
    BranchScale(skip=0.0, without_mask=True),
)
VARIANCE_UNIT = "of the variance"
# values below this are rounding errors
ROUNDING = 1e-9
# arms without rescaled branches
UNSCALED_ARMS = ("unchanged", "shuffled")
METHOD = (
    "{whole}, {places} positions of each, evenly spaced{front}; the residual stream at the input of each layer and "
    "after the last. Explained variance: two-way analysis of variance over positions and {noun}, bias-corrected. "
    "Decoding: nearest class mean of the same position in the other {noun}; and ridge regression of {targets} fitted "
    "to one half of the {noun}, scored on the other, beside a control task (a random number for each token) and "
    "beside positions shuffled within each of the {noun}. Branches: norm(attention output) / norm(residual); then "
    "both are rescaled in every layer, and all is measured again on {few}, unchanged and with shuffled tokens. "
    "Ablation: the principal directions of the position means are projected out before a layer, and the {what} on "
    "{few} is compared with projecting out as many directions estimated after shuffling positions within each of the "
    "{noun}, three times; the null interval is the deviation of each of the three from the others. Intervals: 95 %, "
    "bootstrap over {noun}; of explained variance, over jackknife pseudo-values."
)
SCALING_CAVEAT = (
    "A model with rescaled branches is not the model that was trained; these arms show what carries position, not "
    "how another model would learn."
)
OUTLIER_CAVEAT = (
    "Some models have a few dimensions of very large variance, which then dominate the explained variance. It is "
    "also given without the largest ones; regression standardises all dimensions."
)
NULL = (
    "A residual stream without position information: explained variance 0, one position in {places} recovered, R^2 "
    "of 0 or slightly below. Shuffled: tokens in random order, so that only the position and not the content at it "
    "can be decoded."
)

# one column per layer, or per layer boundary
Numbers = Float[ndarray, "texts _"]


class PositionRetention(Probe):
    """Measure position information in the residual stream by layer, and what preserves it.

    Args:
        doses: repeat the measurement with rescaled attention and skip branches.
    """

    title = "Does position survive to the last layer, and why?"

    def __init__(self, *, doses: bool = True) -> None:
        self.doses = BRANCH_SCALES if doses else ()

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts, reasons = time.perf_counter(), model.info, dict[str, str]()
        whole = observation_sample(facts, data, ForwardBudget(without_logits=1))
        few = intervention_sample(facts, data, ForwardBudget(with_logits=9, without_logits=8))
        if few.count < 4:
            raise NotApplicable(too_few_samples(few, "estimating position means needs 4 texts or more"))
        places = choose_positions(whole, facts)
        plain, ratios = residual_and_branch_ratios(model, whole, places, reasons)
        on_progress(fraction(0.3))
        read, curves = linear_probes(plain, whole, places, seed)
        on_progress(fraction(0.4))
        same = few.description == whole.description
        usual = plain if same else residual_at_positions(model, few, choose_positions(few, facts))
        few_arms, few_decoded = self._rescaled(model, few, usual, seed, reasons)
        arms = few_arms | {"unchanged": _shares(plain)}
        decoded = few_decoded | {"unchanged": _by(nearest_mean_accuracy, plain)}
        estimates = _retention_estimates(arms, decoded, len(places), seed) + read
        estimates += _rescaled_estimates(arms, decoded, usual[0].shape[1], seed) + _ratio_estimates(ratios, seed)
        on_progress(fraction(0.8))
        estimates += ablate_position_subspace(model, few, plain, seed, reasons)
        charts = _charts(arms, decoded, ratios, len(places), seed)
        return Finding(
            question="position_retention",
            title=self.title,
            answer=_answer({one.name: one for one in estimates}, len(places)),
            estimates=tuple(estimates),
            charts=(*charts, curves, *_rescaling_chart(few_arms, few_decoded, self.doses, seed)),
            method=_method(whole, few, len(places), metric_for(model, few, seed).name),
            null=NULL.format(places=len(places)),
            caveats=(
                *(SCALING_CAVEAT, OUTLIER_CAVEAT, *whole.subsampling_notes, *few.subsampling_notes),
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _rescaled(
        self, subject: ModelAdapter, few: Sample, usual: ResidualStreams, seed: int, reasons: dict[str, str]
    ) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
        """Explained variance and decoding accuracy of each arm; of shuffled tokens only the explained variance."""
        places = choose_positions(few, subject.info)
        order = random_permutation(few, few.length, torch.Generator().manual_seed(seed))
        arms = {
            "unchanged": _shares(usual),
            "shuffled": _shares(residual_at_positions(subject, few, places, order=order)),
        }
        decoded = {"unchanged": _by(nearest_mean_accuracy, usual)}
        for dose in self.doses:
            if dose.without_mask and not subject.info.causal:
                continue
            try:
                streams = residual_at_positions(subject, few, places, dose)
            except NotApplicable as reason:
                reasons[dose.name] = str(reason)
                continue
            arms[dose.name], decoded[dose.name] = _shares(streams), _by(nearest_mean_accuracy, streams)
        return arms, decoded


def _method(whole: Sample, few: Sample, places: int, what: str) -> str:
    words = {"whole": whole.description, "few": few.description, "noun": few.noun, "places": places, "what": what}
    words["front"] = ", the first token left out" if few.grid is None else ", class tokens left out"
    words["targets"] = "the position" if few.grid is None else "the row and the column"
    return METHOD.format(**words)


def _by(measure: Callable[[Tensor], Tensor], streams: ResidualStreams) -> Numbers:
    return np.stack([measure(x).numpy() for x in streams], 1)


def _shares(streams: ResidualStreams) -> Numbers:
    return _by(position_share, streams)


def _retention_estimates(
    arms: dict[str, Numbers], decoded: dict[str, Numbers], places: int, seed: int
) -> list[Estimate]:
    found = []
    for name, layer in (("input", 0), ("final layer", -1)):
        found.append(
            mean_estimate(f"variance explained by position, {name}", arms["unchanged"][:, layer], seed, VARIANCE_UNIT)
        )
        found.append(
            mean_estimate(f"the same with shuffled tokens, {name}", arms["shuffled"][:, layer], seed, VARIANCE_UNIT)
        )
        found.append(
            mean_estimate(
                f"positions recovered by nearest mean, {name}",
                decoded["unchanged"][:, layer],
                seed,
                "share",
                1 / places,
            )
        )
    return found


def _rescaled_estimates(
    arms: dict[str, Numbers], decoded: dict[str, Numbers], places: int, seed: int
) -> list[Estimate]:
    found = []
    for name in list(decoded)[1:]:
        found.append(
            mean_estimate(
                f"variance explained by position, final layer, {name}", arms[name][:, -1], seed, VARIANCE_UNIT
            )
        )
        found.append(
            mean_estimate(
                f"positions recovered by nearest mean, final layer, {name}",
                decoded[name][:, -1],
                seed,
                "share",
                1 / places,
            )
        )
    return found


def _ratio_estimates(ratios: dict[str, BranchRatios], seed: int) -> list[Estimate]:
    return [
        mean_estimate(f"{name}, mean of layers", values.mean(1).numpy(), seed, "", None)
        for name, values in ratios.items()
    ]


def _charts(
    arms: dict[str, Numbers], decoded: dict[str, Numbers], ratios: dict[str, BranchRatios], places: int, seed: int
) -> list[Chart]:
    layers = range(next(iter(arms.values())).shape[1])
    ends = (0.0, float(layers[-1]))
    chance = Line(name="by chance", x=ends, y=(1 / places, 1 / places), null=True)
    shares = [_line(name, values, seed) for name, values in arms.items()]
    right = [_line(name, values, seed) for name, values in decoded.items()]
    found = [
        Chart(title="Variance of the residual stream explained by position", x="after layer",
              y="share of the variance", lines=tuple(shares),
              caption="0: input of the first layer. Attention and skip branches are rescaled in every layer."),
        Chart(title="Positions recovered by the nearest class mean", x="after layer", y="share",
              lines=(*right, chance)),
    ]  # fmt: skip
    if ratios:
        lines = [mean_line(name, range(1, own.shape[1] + 1), own.numpy(), seed) for name, own in ratios.items()]
        found.append(
            Chart(title="Attention output relative to the residual stream", x="layer", y="ratio", lines=tuple(lines))
        )
    return found


def _rescaling_chart(
    arms: dict[str, Numbers], decoded: dict[str, Numbers], doses: tuple[BranchScale, ...], seed: int
) -> list[Chart]:
    """Position information in the final layer by the ratio of attention and skip scales."""
    kept = {
        one.attention / one.skip: one.name for one in (BranchScale(), *doses) if one.skip and not one.without_mask
    }
    some = sorted((ratio, name) for ratio, name in kept.items() if name in decoded)
    if len(some) < 2:
        return []
    ratios, last = (
        [ratio for ratio, _ in some],
        {"variance explained by position": arms, "positions recovered by nearest mean": decoded},
    )
    lines = [
        mean_line(what, ratios, np.stack([values[name][:, -1] for _, name in some], 1), seed)
        for what, values in last.items()
    ]
    caption = "1: the unchanged model. Attention is scaled up, or the skip down, in every layer."
    words = {"title": "Position in the final layer by strength of attention", "y": "share", "caption": caption}
    return [Chart(x="attention / skip [factor]", lines=tuple(lines), across="log", **words)]


def _line(name: str, values: Numbers, seed: int) -> Line:
    """Line by layer; without bands for rescaled arms, which would overlap (the table lists the intervals)."""
    line = mean_line(name, range(values.shape[1]), values, seed, null=name == "shuffled")
    return line if name in UNSCALED_ARMS else line.model_copy(update={"low": None, "high": None})


def _answer(found: dict[str, Estimate], places: int) -> str:
    first, last = (found[f"variance explained by position, {name}"] for name in ("input", "final layer"))
    right = found["positions recovered by nearest mean, final layer"]
    sure = last.low is not None and last.low > 0
    parts = [
        f"Position explains {format_value(first)} of the variance at the input, and {format_value(last)} after the "
        "last layer."
        if sure
        else f"No position information is left after the last layer: it explains {format_value(last)} of the "
        "variance.",
        f"The nearest class mean recovers {format_percent(right.value)} of {places} positions there (chance: "
        f"{100 / places:.1f} %).",
    ]  # fmt: skip
    ratio = found.get("norm of attention output / norm of residual, mean of layers")
    if ratio is not None:
        parts.append(f"The norm of the attention output is {format_value(ratio)} times that of the residual stream.")
    severed = found.get("variance explained by position, final layer, no skip")
    if severed is not None:
        left = severed.value if severed.high is None else severed.high
        amount = "position explains nothing" if left < ROUNDING else f"position explains {format_value(severed)}"
        parts.append(f"Without the skip connection {amount} after the last layer.")
    return " ".join(parts)
