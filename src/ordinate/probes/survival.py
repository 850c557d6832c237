"""Whether a token's position survives to the last layer, and what carries it there."""

import time
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.finding import Chart, Estimate, Finding, Line
from ordinate.measures.cutting import cuts
from ordinate.measures.harm import gauge
from ordinate.measures.presenting import Passes, Sample, changed, looked_at, shuffled
from ordinate.measures.readouts import readouts
from ordinate.measures.telling import estimate_of, lacking, line_of, percent, short
from ordinate.measures.whereabouts import (
    Dose,
    Ratios,
    Streams,
    kept,
    kept_and_added,
    places_of,
)
from ordinate.ops.readout import nearest_mean
from ordinate.ops.variance import place_share
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Subject, Unfit

DOSES = (Dose(0.25), Dose(4.0), Dose(16.0), Dose(skip=0.5), Dose(skip=0.0), Dose(skip=0.0, blind=True))
SHARE = "of the variance"
# less of it is rounding
NOUGHT = 1e-9
# arms in which no sum is weighted anew
PLAIN = ("as it is", "shuffled")
METHOD = (
    "{whole}, {places} places of each, evenly spread{front}; the residual stream as it enters each layer and as it "
    "leaves the last. Share: analysis of variance, places and {noun} crossed, less what chance gives. Told: the "
    "nearest mean of the same place in the other {noun}; and ridge regression of {targets} fitted to one half of the "
    "{noun}, scored on the other, beside a control task, numbers drawn for each token in the texts, and beside "
    "places exchanged in each of the {noun}. Carried: |A| / |x|, what attention adds beside what it is added to; "
    "then A and x are weighted anew in every layer, and all is measured again on {few}, as it is with tokens "
    "shuffled. Used: the directions in which the means of places differ are cut out before a layer, and the {what} "
    "on {few} is compared with cutting out as many in which they differ when places are exchanged in each of the "
    "{noun}, three times; without effect: how far each of the three is from the others. Intervals: 95 %, bootstrap "
    "over {noun}; of shares, over their jackknife's pseudo-values."
)
ANEW = (
    "A stream that is weighted anew is not what the model was trained with; its arms tell what carries position, not "
    "how another model would learn."
)
OUTLIERS = (
    "Some models have a few columns of enormous size; a share of the variance is then theirs. It is given without "
    "the largest ones too, and regression sees all columns in one size."
)
NULL = (
    "A stream that knows no place: share 0, one place in {places} told, R^2 of 0 or a little below. Shuffled: tokens "
    "in random order, so that only the place and not what stands there can be told."
)

# a column for each layer, or for each time that the stream passes from one to the next
Numbers = Float[ndarray, "texts _"]


class Survival(Probe):
    """Whether a token's position survives to the last layer, and what carries it there.

    Args:
        doses: how attention and the skip are weighted anew.
    """

    title = "Does position survive to the last layer, and why?"

    def __init__(self, *, doses: bool = True) -> None:
        self.doses = DOSES if doses else ()

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, facts, reasons = time.perf_counter(), subject.facts, dict[str, str]()
        whole = looked_at(facts, material, Passes(headless=1))
        few = changed(facts, material, Passes(whole=9, headless=8))
        if few.texts < 4:
            raise Unfit(lacking(few, "what is common to texts needs 4 of them"))
        places = places_of(whole, facts)
        plain, ratios = kept_and_added(subject, whole, places, reasons)
        tell(0.3)
        read, curves = readouts(plain, whole, places, seed)
        tell(0.4)
        usual = plain if few.size == whole.size else kept(subject, few, places_of(few, facts))
        few_arms, few_told = self._dosed(subject, few, usual, seed, reasons)
        arms, told = few_arms | {"as it is": _shares(plain)}, few_told | {"as it is": _by(nearest_mean, plain)}
        estimates = _of_places(arms, told, len(places), seed) + read
        estimates += _of_doses(arms, told, usual[0].shape[1], seed) + _of_ratios(ratios, seed)
        tell(0.8)
        estimates += cuts(subject, few, plain, seed, reasons)
        return Finding(
            question="survival",
            title=self.title,
            answer=_answer({one.name: one for one in estimates}, len(places)),
            estimates=tuple(estimates),
            charts=(
                *_charts(arms, told, ratios, len(places), seed),
                curves,
                *_by_dose(few_arms, few_told, self.doses, seed),
            ),
            method=_method(whole, few, len(places), gauge(subject, few, seed).name),
            null=NULL.format(places=len(places)),
            caveats=(
                ANEW,
                OUTLIERS,
                *whole.left_out,
                *few.left_out,
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _dosed(
        self, subject: Subject, few: Sample, usual: Streams, seed: int, reasons: dict[str, str]
    ) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
        """Share and telling in each arm; of shuffled tokens the share alone."""
        places = places_of(few, subject.facts)
        order = shuffled(few, few.length, torch.Generator().manual_seed(seed))
        arms = {"as it is": _shares(usual), "shuffled": _shares(kept(subject, few, places, order=order))}
        told = {"as it is": _by(nearest_mean, usual)}
        for dose in self.doses:
            if dose.blind and not subject.facts.causal:
                continue
            try:
                streams = kept(subject, few, places, dose)
            except Unfit as reason:
                reasons[dose.name] = str(reason)
                continue
            arms[dose.name], told[dose.name] = _shares(streams), _by(nearest_mean, streams)
        return arms, told


def _method(whole: Sample, few: Sample, places: int, what: str) -> str:
    words = {"whole": whole.size, "few": few.size, "noun": few.noun, "places": places, "what": what}
    words["front"] = ", the first token left out" if few.grid is None else ", class tokens left out"
    words["targets"] = "the place" if few.grid is None else "the row and the column"
    return METHOD.format(**words)


def _by(measure: Callable[[Tensor], Tensor], streams: Streams) -> Numbers:
    return np.stack([measure(x).numpy() for x in streams], 1)


def _shares(streams: Streams) -> Numbers:
    return _by(place_share, streams)


def _of_places(arms: dict[str, Numbers], told: dict[str, Numbers], places: int, seed: int) -> list[Estimate]:
    found = []
    for name, layer in (("as it enters", 0), ("in the end", -1)):
        found.append(estimate_of(f"share of position, {name}", arms["as it is"][:, layer], seed, SHARE))
        found.append(estimate_of(f"the same of shuffled tokens, {name}", arms["shuffled"][:, layer], seed, SHARE))
        found.append(estimate_of(f"places told, {name}", told["as it is"][:, layer], seed, "share", 1 / places))
    return found


def _of_doses(arms: dict[str, Numbers], told: dict[str, Numbers], places: int, seed: int) -> list[Estimate]:
    found = []
    for name in list(told)[1:]:
        found.append(estimate_of(f"share of position in the end, {name}", arms[name][:, -1], seed, SHARE))
        found.append(estimate_of(f"places told in the end, {name}", told[name][:, -1], seed, "share", 1 / places))
    return found


def _of_ratios(ratios: dict[str, Ratios], seed: int) -> list[Estimate]:
    return [
        estimate_of(f"{name}, mean of layers", values.mean(1).numpy(), seed, "", None)
        for name, values in ratios.items()
    ]


def _charts(
    arms: dict[str, Numbers], told: dict[str, Numbers], ratios: dict[str, Ratios], places: int, seed: int
) -> list[Chart]:
    layers = range(next(iter(arms.values())).shape[1])
    ends = (0.0, float(layers[-1]))
    chance = Line(name="by chance", x=ends, y=(1 / places, 1 / places), null=True)
    shares = [_line(name, values, seed) for name, values in arms.items()]
    right = [_line(name, values, seed) for name, values in told.items()]
    found = [
        Chart(title="How much of the stream is position", x="after layer", y=f"share {SHARE}", lines=tuple(shares),
              caption="0: as the tokens enter. Sums of stream and attention are weighted anew in every layer."),
        Chart(title="How often a place is told by the nearest mean", x="after layer", y="share",
              lines=(*right, chance)),
    ]  # fmt: skip
    if ratios:
        lines = [line_of(name, range(1, own.shape[1] + 1), own.numpy(), seed) for name, own in ratios.items()]
        found.append(Chart(title="What attention adds", x="layer", y="ratio", lines=tuple(lines)))
    return found


def _by_dose(arms: dict[str, Numbers], told: dict[str, Numbers], doses: tuple[Dose, ...], seed: int) -> list[Chart]:
    """What is left in the end, by how strongly attention enters beside what it is added to."""
    kept = {one.attention / one.skip: one.name for one in (Dose(), *doses) if one.skip and not one.blind}
    some = sorted((ratio, name) for ratio, name in kept.items() if name in told)
    if len(some) < 2:
        return []
    ratios, last = [ratio for ratio, _ in some], {"share of position": arms, "places told": told}
    lines = [
        line_of(what, ratios, np.stack([values[name][:, -1] for _, name in some], 1), seed)
        for what, values in last.items()
    ]
    caption = "1: as the model is. Attention is made stronger, or the skip weaker, in every layer."
    words = {"title": "What is left in the end, by how much attention adds", "y": "share", "caption": caption}
    return [Chart(x="attention beside the skip [times]", lines=tuple(lines), across="log", **words)]


def _line(name: str, values: Numbers, seed: int) -> Line:
    """By layer; bands of all arms would hide each other, and the table has them."""
    line = line_of(name, range(values.shape[1]), values, seed, null=name == "shuffled")
    return line if name in PLAIN else line.model_copy(update={"low": None, "high": None})


def _answer(found: dict[str, Estimate], places: int) -> str:
    first, last = (found[f"share of position, {name}"] for name in ("as it enters", "in the end"))
    right = found["places told, in the end"]
    sure = last.low is not None and last.low > 0
    parts = [
        f"Position makes up {short(first)} of the variance as it enters, and {short(last)} in the end." if sure
        else f"No position is left in the end that shows: it makes up {short(last)} of the variance.",
        f"In the end {percent(right.value)} of {places} places are told by the nearest mean (chance: "
        f"{100 / places:.1f} %).",
    ]  # fmt: skip
    ratio = found.get("what attention adds, beside what it is added to, mean of layers")
    if ratio is not None:
        parts.append(f"What attention adds is {short(ratio)} times as long as what it is added to.")
    severed = found.get("share of position in the end, skip severed")
    if severed is not None:
        left = severed.value if severed.high is None else severed.high
        amount = "nothing of it is left" if left < NOUGHT else f"position makes up {short(severed)}"
        parts.append(f"With the skip severed {amount} in the end.")
    return " ".join(parts)
