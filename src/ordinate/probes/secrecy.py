"""Whether a disguised input gives the same result, and whether anybody is deceived by the disguise."""

import time
from collections.abc import Mapping

from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from ordinate.finding import Chart, Estimate, Finding, Line
from ordinate.measures.attack import FROM, TRIED, Read, recognised, recovered
from ordinate.measures.disguise import Features, channels, features, renamed
from ordinate.measures.equivariance import PAIRS, TOKENS, arms, fullest, rounding
from ordinate.measures.presenting import Passes, Sample, beginnings, sample
from ordinate.measures.telling import OF_LENGTH, estimate_of, line_of, percent
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Subject, Unfit

ATTACKED = 64
METHOD = (
    "Undone: tokens are permuted, alone or with their positions and what each saw, and the output is put back in "
    "order. Columns: the stream that enters the first layer is permuted or rotated, and the layer's weights too; its "
    "queries are compared. Channels: those of queries and keys are permuted alike in all layers. Reading along: "
    "whoever knows the model and {public} other texts looks at each row of the permuted stream of {secret} texts by "
    "itself, and takes the nearest mean of a place, or of a token; where columns are permuted too, numbers are put "
    "in order of size first. Trying: {tried} rows of one text are compared with what the model makes of candidates. "
    "Names: tokens are renamed, and read back by how often each comes. Intervals: 95 %, bootstrap over texts."
)
NULL = "Undone: rounding. Reading along: one place in {length}, one token in those known."


class Secrecy(Probe):
    """Whether a disguised input gives the same, undone, and what whoever reads along can tell.

    Args:
        candidates: tokens that are tried for each place.
    """

    title = "If I permute or encrypt the input and undo it in the end, is it the same, and is it private?"

    def __init__(self, *, candidates: int = 63) -> None:
        self.candidates = candidates

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, reasons = time.perf_counter(), dict[str, str]()
        if material.ids is None:
            raise Unfit("its attack reads texts back; there are only images")
        chosen = sample(subject.facts, beginnings(material, ATTACKED), Passes(2))
        half = chosen.texts // 2
        if half < 2:
            raise Unfit(f"whoever reads along must know other texts; there are {chosen.texts}; give more")
        secret, public = chosen.first(half), _rest(chosen, half)
        estimates = _of_arms(subject, chosen.first(PAIRS, TOKENS), seed, reasons)
        tell(0.2)
        estimates += _of_features(subject, chosen.first(2), seed, reasons)
        tell(0.3)
        read = Read.of(subject, secret, public)
        tell(0.7)
        layers = {
            name: recovered(read, sort=sort)
            for name, sort in (("rows permuted", False), ("rows and columns permuted", True))
        }
        tell(0.8)
        found = {name: (places.numpy(), tokens.numpy()) for name, (places, tokens) in layers.items()}
        estimates += _of_attack(found, chosen.length, seed) + self._tried(subject, secret, seed, reasons)
        estimates += _of_names(subject, material.ids[: chosen.texts, chosen.fixed :], half, seed)
        words = {"public": public.texts, "secret": secret.texts, "tried": TRIED}
        return Finding(
            question="secrecy",
            title=self.title,
            answer=_answer(subject, estimates),
            estimates=tuple(estimates),
            charts=(_chart("place", 0, found, chosen.length, seed), _chart("token", 1, found, chosen.length, seed)),
            method=METHOD.format(**words),
            null=NULL.format(length=chosen.length),
            caveats=(
                "These are simple attacks; that one fails shows no secrecy.",
                *chosen.left_out,
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _tried(self, subject: Subject, secret: Sample, seed: int, reasons: dict[str, str]) -> list[Estimate]:
        """Of a decoder, whether tokens betray themselves when they are tried."""
        ids = secret.given(slice(0, 1)).ids
        if not subject.facts.causal or ids is None or ids.shape[1] < FROM + TRIED:
            reasons["trying tokens"] = "a token's vector depends on those after it, which are not known"
            return []
        layer = max(1, subject.facts.layers // 2)
        share, own, other = recognised(subject, ids[0], layer, self.candidates, seed)
        chance = 1 / ((self.candidates + 1) * (FROM + TRIED))
        return [
            Estimate(name=f"tokens recognised by trying, layer {layer}", value=share, null=chance, unit="share"),
            Estimate(name="distance of the right one", value=own, null=other, unit="beside the nearest wrong one"),
        ]


def _rest(chosen: Sample, first: int) -> Sample:
    given = chosen.given(slice(first, chosen.texts))
    return Sample(given.ids, None, chosen.fixed, None)


def _of_arms(subject: Subject, short: Sample, seed: int, reasons: dict[str, str]) -> list[Estimate]:
    errors, missing = arms(subject, short, seed)
    reasons |= missing
    kept = {name: values for name, values in errors.items() if name.startswith("tokens")}
    return [
        estimate_of(f"change, {name} permuted and undone", values, seed, OF_LENGTH) for name, values in kept.items()
    ]


def _of_features(subject: Subject, few: Sample, seed: int, reasons: dict[str, str]) -> list[Estimate]:
    estimates = []
    try:
        found: Features = features(subject, few.given(slice(0, few.texts)), 0, seed)
        told = {"permuted": found.permuted, "rotated": found.rotated, "rotated about the ones": found.level}
        norm = {"none": "no norm", "rms": "an RMS norm", "layer": "a layer norm"}[found.norm]
        estimates += [
            Estimate(name=f"change of queries behind {norm}, columns {how}", value=value, null=0.0, unit=OF_LENGTH)
            for how, value in told.items()
        ]
    except Unfit as reason:
        reasons["disguised columns"] = str(reason)
    try:
        width = _head_width(subject)
        found_by = channels(subject, few, width, seed)
        estimates += [
            Estimate(name=f"change, channels permuted {how}", value=value, null=0.0, unit=OF_LENGTH)
            for how, value in found_by.items()
        ]
    except Unfit as reason:
        reasons["disguised channels"] = str(reason)
    return estimates


def _head_width(subject: Subject) -> int:
    try:
        return subject.projection(0).query.shape[-1]
    except Unfit:
        return subject.facts.width // subject.facts.heads


def _of_attack(found: Mapping[str, tuple[ndarray, ndarray]], length: int, seed: int) -> list[Estimate]:
    estimates = []
    for name, (places, tokens) in found.items():
        for what, values, chance in (("places", places, 1 / length), ("tokens", tokens, None)):
            layer = int(values.mean(0).argmax())
            for where, own in ((f"layer {layer}", values[:, layer]), ("last layer", values[:, -1])):
                estimates.append(estimate_of(f"{what} read back, {name}, {where}", own, seed, "share", chance))
    return estimates


def _of_names(subject: Subject, body: Int[Tensor, "texts n"], half: int, seed: int) -> list[Estimate]:
    share = renamed(body[:half], body[half:], subject.facts.vocabulary, seed)
    chance = 1 / subject.facts.vocabulary
    return [Estimate(name="tokens read back after renaming them", value=share, null=chance, unit="share")]


def _chart(what: str, place: int, found: Mapping[str, tuple[ndarray, ndarray]], length: int, seed: int) -> Chart:
    values = {name: pair[place] for name, pair in found.items()}
    layers = range(next(iter(values.values())).shape[1])
    lines = [line_of(name, layers, one, seed) for name, one in values.items()]
    if what == "place":
        ends = (0.0, float(len(layers) - 1))
        lines.append(Line(name="by chance", x=ends, y=(1 / length, 1 / length), null=True))
    caption = "Each row by itself, compared with means over other texts. Layer 0 is what enters the first."
    title = "Rows whose place is recognised" if what == "place" else "Rows whose token is recognised"
    return Chart(title=title, x="layer", y="share", lines=tuple(lines), caption=caption)


def _answer(subject: Subject, estimates: list[Estimate]) -> str:
    found, told = {one.name: one for one in estimates}, []
    blind = rounding(subject.facts.dtype)
    exact = [one for one in estimates if one.name.startswith("change, tokens") and one.value <= blind]
    if exact:
        what = exact[0].name.removeprefix("change, ").removesuffix(" permuted and undone")
        told.append(f"The same: {what} permuted and undone change it by {exact[0].value:.1g} of its length.")
    elif f"change, {fullest(subject.facts).name} permuted and undone" in found:
        told.append("Not the same: what was permuted does not come back as it was.")
    else:
        told.append("Whether it comes back the same, permuted with all that tells the order, could not be measured.")
    best, places = (
        max(one.value for one in estimates if one.name.startswith(f"{what} read back, rows permuted"))
        for what in ("tokens", "places")
    )
    told.append(
        f"It is not private: whoever knows the model reads back {percent(best)} of the tokens and "
        f"{percent(places)} of the places from permuted rows of its stream"
        + ("." if (by := _tried_share(found)) is None else f", and recognises {percent(by)} of tokens by trying.")
    )
    return " ".join(told)


def _tried_share(found: Mapping[str, Estimate]) -> float | None:
    return next((one.value for name, one in found.items() if name.startswith("tokens recognised by trying")), None)
