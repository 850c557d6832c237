"""Position retention: position information in the residual stream by layer, and the branches that carry it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Chart, Estimate, Finding, Line
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.ops.linear_readout import nearest_mean_accuracy, similarity_by_distance
from ordinate.ops.stats.variance_components import ShareEstimate, position_share
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import (
    format_percent,
    format_value,
    interval_line,
    mean_estimate,
    mean_line,
    sample_caveats,
    share_estimate,
    too_few_samples,
)
from ordinate.probing.measures.grading import Evidence, corrected_level, decide, mean_evidence
from ordinate.probing.measures.linear_probes import LinearProbes, linear_probes
from ordinate.probing.measures.measured import Measured, missing_parts
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
# smallest effects after the last layer that matter: in R^2, rho and share of positions, and share of the variance
SIZE, VARIANCE_SIZE = 0.1, 0.01
RHO_NAME = "rank correlation of cosine distance and token distance, shuffled tokens, final layer"
# values below this are rounding errors
ROUNDING = 1e-9
# arms without rescaled branches
UNSCALED_ARMS = ("unchanged", "shuffled")
METHOD = (
    "{whole}, {places} positions of each, evenly spaced{front}; the residual stream at the input of each layer and "
    "after the last. Explained variance: two-way analysis of variance over positions and {noun}, bias-corrected; "
    "its interval is that of a ratio of U-statistics. Decoding: nearest class mean of a position, and ridge "
    "regression of {targets}, both fitted to one half of the {noun} and scored on the other, beside a control "
    "task (a random number for each token) and beside positions shuffled within each of the {noun}. Grade: explained "
    "variance, nearest mean, R^2 without and with squares, and the rank correlation with shuffled tokens, all after "
    "the last layer, at {level:.3f} confidence each (Bonferroni); yes from R^2 of {size}, {size} more positions than "
    "by chance, rho of {size} or {variance_size} of the variance on, weakly below. Branches: norm(attention output) "
    "/ norm(residual); then both are rescaled in every layer, and all is measured again on {few}, unchanged and with "
    "shuffled tokens. Ablation: the principal directions of the position means are projected out before a layer, and "
    "the {what} on {few} is compared with projecting out as many directions estimated after shuffling positions "
    "within each of the {noun}, five times; the interval counts the differences between these controls, and the null "
    "interval is that of one more control. Intervals: 95 %, over {noun}."
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

# one for each layer boundary
Shares = list[ShareEstimate]
Accuracies = Float[ndarray, "tested _"]


@dataclass(frozen=True)
class Arms:
    """Measurements by arm: unchanged, shuffled tokens, rescaled branches.

    Args:
        shares: variance explained by position.
        decoded: positions recovered by the nearest mean; not of shuffled tokens.
        rho: rank correlation of cosine distance and token distance of shuffled tokens, after the last layer.
    """

    shares: dict[str, Shares]
    decoded: dict[str, Accuracies]
    rho: Float[ndarray, "texts"]

    def with_unchanged(self, plain: ResidualStreams) -> "Arms":
        """Replace the measurements of the unchanged arm by those of more texts."""
        shares, decoded = self.shares | {"unchanged": _shares(plain)}, self.decoded | {"unchanged": _decoded(plain)}
        return Arms(shares, decoded, self.rho)


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
        began, facts = time.perf_counter(), model.info
        whole = observation_sample(facts, data, ForwardBudget(without_logits=1))
        few = intervention_sample(facts, data, ForwardBudget(with_logits=13, without_logits=8))
        if few.count < 4:
            raise NotApplicable(too_few_samples(few, "estimating position means needs 4 texts or more"))
        places = choose_positions(whole, facts)
        count = len(places)
        plain, ratios = (streams := residual_and_branch_ratios(model, whole, places)).value
        on_progress(fraction(0.3))
        read = linear_probes(plain, whole, places, seed)
        on_progress(fraction(0.4))
        usual = plain if few.description == whole.description else _few_streams(model, few)
        rescaled = self._rescaled(model, few, usual, seed)
        arms = rescaled.value.with_unchanged(plain)
        estimates = _retention_estimates(arms, count, seed) + read.estimates
        estimates += _rescaled_estimates(arms, usual[0].shape[1], seed) + _ratio_estimates(ratios, seed)
        on_progress(fraction(0.8))
        ablated = ablate_position_subspace(model, few, plain, seed)
        estimates += ablated.value
        evidence = _evidence(arms, plain, read, count, seed)
        grade, effect = decide(evidence)
        missing = missing_parts(streams, rescaled, ablated)
        scaled = _rescaling_chart(rescaled.value, self.doses, seed)
        return Finding(
            question="position_retention",
            title=self.title,
            grade=grade,
            effect=effect,
            answer=_answer({one.name: one for one in (*estimates, *(one.estimate for one in evidence))}, count),
            estimates=tuple(estimates),
            charts=(*_charts(arms, ratios, count, seed), read.chart, *scaled),
            method=_method(whole, few, count, metric_for(model, few, seed).name, len(evidence)),
            null=NULL.format(places=count),
            caveats=(SCALING_CAVEAT, OUTLIER_CAVEAT, *sample_caveats([whole, few], missing)),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _rescaled(self, subject: ModelAdapter, few: Sample, usual: ResidualStreams, seed: int) -> Measured[Arms]:
        """Explained variance and decoding accuracy of each arm; of shuffled tokens only the explained variance."""
        places = choose_positions(few, subject.info)
        order = random_permutation(few, few.length, torch.Generator().manual_seed(seed))
        shuffled = residual_at_positions(subject, few, places, order=order)
        shares = {"unchanged": _shares(usual), "shuffled": _shares(shuffled)}
        decoded, missing = {"unchanged": _decoded(usual)}, dict[str, str]()
        for dose in self.doses:
            if dose.without_mask and not subject.info.causal:
                continue
            try:
                streams = residual_at_positions(subject, few, places, dose)
            except NotApplicable as reason:
                missing[dose.name] = str(reason)
                continue
            shares[dose.name], decoded[dose.name] = _shares(streams), _decoded(streams)
        return Measured(Arms(shares, decoded, similarity_by_distance(shuffled[-1], places.double())), missing)


def _few_streams(model: ModelAdapter, few: Sample) -> ResidualStreams:
    return residual_at_positions(model, few, choose_positions(few, model.info))


def _method(whole: Sample, few: Sample, places: int, what: str, tests: int) -> str:
    words = {"whole": whole.description, "few": few.description, "noun": few.noun, "places": places, "what": what}
    words |= {"level": corrected_level(tests), "size": SIZE, "variance_size": VARIANCE_SIZE}
    words["front"] = ", the first token left out" if few.grid is None else ", class tokens left out"
    words["targets"] = "the position" if few.grid is None else "the row and the column"
    return METHOD.format(**words)


def _decoded(streams: ResidualStreams) -> Accuracies:
    return np.stack([nearest_mean_accuracy(x).numpy() for x in streams], 1)


def _shares(streams: ResidualStreams) -> Shares:
    return [position_share(x) for x in streams]


def _evidence(arms: Arms, plain: ResidualStreams, read: LinearProbes, places: int, seed: int) -> list[Evidence]:
    """All measures of position after the last layer, with their 95 % intervals and the corrected ones."""
    decoded = {
        "positions recovered by nearest mean, final layer": (arms.decoded["unchanged"][:, -1], "share", 1 / places),
        **{name: (values, "", 0.0) for name, values in read.final.items()},
        RHO_NAME: (arms.rho, "rho", 0.0),
    }
    name, tests = "variance explained by position, final layer", len(decoded) + 1
    shares = (arms.shares["unchanged"][-1], position_share(plain[-1], corrected_level(tests)))
    own, corrected = (share_estimate(name, one) for one in shares)
    return [Evidence(own, corrected, VARIANCE_SIZE)] + [
        mean_evidence(name, values, seed, unit, null=null, tests=tests, size=SIZE)
        for name, (values, unit, null) in decoded.items()
    ]


def _retention_estimates(arms: Arms, places: int, seed: int) -> list[Estimate]:
    found = []
    for name, layer in (("input", 0), ("final layer", -1)):
        right, what = arms.decoded["unchanged"][:, layer], f"positions recovered by nearest mean, {name}"
        found += [
            share_estimate(f"variance explained by position, {name}", arms.shares["unchanged"][layer]),
            share_estimate(f"the same with shuffled tokens, {name}", arms.shares["shuffled"][layer]),
            mean_estimate(what, right, seed, "share", 1 / places),
        ]
    return [*found, mean_estimate(RHO_NAME, arms.rho, seed, "rho")]


def _rescaled_estimates(arms: Arms, places: int, seed: int) -> list[Estimate]:
    found = []
    for name, right in list(arms.decoded.items())[1:]:
        what = f"positions recovered by nearest mean, final layer, {name}"
        found += [
            share_estimate(f"variance explained by position, final layer, {name}", arms.shares[name][-1]),
            mean_estimate(what, right[:, -1], seed, "share", 1 / places),
        ]
    return found


def _ratio_estimates(ratios: dict[str, BranchRatios], seed: int) -> list[Estimate]:
    return [
        mean_estimate(f"{name}, mean of layers", values.mean(1).numpy(), seed, "", None)
        for name, values in ratios.items()
    ]


def _charts(arms: Arms, ratios: dict[str, BranchRatios], places: int, seed: int) -> list[Chart]:
    layers = range(len(next(iter(arms.shares.values()))))
    ends = (0.0, float(layers[-1]))
    chance = Line(name="by chance", x=ends, y=(1 / places, 1 / places), null=True)
    shares = [
        _plain_if_rescaled(interval_line(name, layers, own, null=name == "shuffled"))
        for name, own in arms.shares.items()
    ]
    right = [_plain_if_rescaled(mean_line(name, layers, own, seed)) for name, own in arms.decoded.items()]
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


def _rescaling_chart(arms: Arms, doses: Sequence[BranchScale], seed: int) -> list[Chart]:
    """Position information in the final layer by the ratio of attention and skip scales."""
    kept = {
        one.attention / one.skip: one.name for one in (BranchScale(), *doses) if one.skip and not one.without_mask
    }
    some = sorted((ratio, name) for ratio, name in kept.items() if name in arms.decoded)
    if len(some) < 2:
        return []
    ratios, names = [ratio for ratio, _ in some], [name for _, name in some]
    right = np.stack([arms.decoded[name][:, -1] for name in names], 1)
    lines = (
        interval_line("variance explained by position", ratios, [arms.shares[name][-1] for name in names]),
        mean_line("positions recovered by nearest mean", ratios, right, seed),
    )
    caption = "1: the unchanged model. Attention is scaled up, or the skip down, in every layer."
    words = {"title": "Position in the final layer by strength of attention", "y": "share", "caption": caption}
    return [Chart(x="attention / skip [factor]", lines=lines, across="log", **words)]


def _plain_if_rescaled(line: Line) -> Line:
    """Drop the bands of rescaled arms, which would overlap (the table lists the intervals)."""
    return line if line.name in UNSCALED_ARMS else line.model_copy(update={"low": None, "high": None})


def _answer(found: dict[str, Estimate], places: int) -> str:
    first, last = (found[f"variance explained by position, {name}"] for name in ("input", "final layer"))
    right = found["positions recovered by nearest mean, final layer"]
    read = [f"{format_value(one)} for {name}" for name, one in _final_probes(found).items()]
    parts = [
        f"Position explains {format_value(first)} of the variance at the input, and {format_value(last)} after the "
        "last layer.",
        f"There the nearest class mean recovers {format_percent(right.value)} of {places} positions (chance: "
        f"{100 / places:.1f} %), and linear probes have an R^2 of {', '.join(read)}.",
    ]
    ratio = found.get("norm of attention output / norm of residual, mean of layers")
    if ratio is not None:
        parts.append(f"The norm of the attention output is {format_value(ratio)} times that of the residual stream.")
    severed = found.get("variance explained by position, final layer, no skip")
    if severed is not None:
        left = severed.value if severed.high is None else severed.high
        amount = "position explains nothing" if left < ROUNDING else f"position explains {format_value(severed)}"
        parts.append(f"Without the skip connection {amount} after the last layer.")
    return " ".join(parts)


def _final_probes(found: dict[str, Estimate]) -> dict[str, Estimate]:
    """R^2 of linear probes for position after the last layer, by what they read."""
    short = {
        f"R^2 of a linear probe{how} for {what}, final layer": f"{what}{how}"
        for what in ("position", "row", "column")
        for how in ("", " with squares")
    }
    return {words: found[name] for name, words in short.items() if name in found}
