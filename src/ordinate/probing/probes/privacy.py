"""Privacy of permuted inputs: exactness of undoing a permutation, and reconstruction attacks on hidden states."""

import time
from collections.abc import Mapping

from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from ordinate.core.finding import Chart, Estimate, Finding, Line
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import RELATIVE_UNIT, format_percent, mean_estimate, mean_line
from ordinate.probing.measures.input_obfuscation import (
    FeatureErrors,
    frequency_analysis,
    permuted_channel_errors,
    transformed_query_errors,
)
from ordinate.probing.measures.permutation_equivariance import (
    SHORT_LENGTH,
    SHORT_TEXTS,
    equivariance_errors,
    exact_arm,
    rounding_tolerance,
)
from ordinate.probing.measures.reconstruction_attack import (
    CONTEXT_TOKENS,
    SEARCHED_TOKENS,
    AttackData,
    candidate_search_attack,
    nearest_mean_attack,
)
from ordinate.probing.measures.samples import ForwardBudget, Sample, subsample, truncated

MAX_LENGTH = 64
METHOD = (
    "Equivariance: tokens are permuted, alone or with position ids and mask, and the output is permuted back. "
    "Columns: the residual stream at the input of the first layer is permuted or rotated, and the layer's weights "
    "too; its queries are compared. Channels: those of queries and keys are permuted alike in all layers. "
    "Reconstruction: an attacker who knows the model and {public} other texts classifies each row of the permuted "
    "residual stream of {secret} texts by the nearest class mean of a position, or of a token; if columns are "
    "permuted too, vectors are sorted first. Candidate search: {tried} rows of one text are compared with the "
    "model's vectors of candidate tokens. Renaming: token ids are renamed, and recovered by frequency analysis. "
    "Intervals: 95 %, bootstrap over texts."
)
NULL = "Equivariance: rounding error. Reconstruction: one position in {length}, one token in those known."


class Privacy(Probe):
    """Permute or rotate inputs, undo it on the output, and attack the permuted hidden states.

    Args:
        candidates: wrong candidate tokens per position in the candidate search.
    """

    title = "If I permute or encrypt the input and undo it in the end, is it the same, and is it private?"

    def __init__(self, *, candidates: int = 63) -> None:
        self.candidates = candidates

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, reasons = time.perf_counter(), dict[str, str]()
        if data.ids is None:
            raise NotApplicable("the attack reconstructs texts; got only images")
        chosen = subsample(model.info, truncated(data, MAX_LENGTH), ForwardBudget(2))
        half = chosen.count // 2
        if half < 2:
            raise NotApplicable(f"the attack needs four texts or more; got {chosen.count}; pass more")
        secret, public = chosen.truncated(half), _remaining(chosen, half)
        estimates = _equivariance_estimates(model, chosen.truncated(SHORT_TEXTS, SHORT_LENGTH), seed, reasons)
        on_progress(fraction(0.2))
        estimates += _transformation_estimates(model, chosen.truncated(2), seed, reasons)
        on_progress(fraction(0.3))
        read = AttackData.of(model, secret, public)
        on_progress(fraction(0.7))
        permuted = {"rows permuted": False, "rows and columns permuted": True}
        layers = {name: nearest_mean_attack(read, sort_columns=sort) for name, sort in permuted.items()}
        found = {name: (places.numpy(), tokens.numpy()) for name, (places, tokens) in layers.items()}
        on_progress(fraction(0.8))
        estimates += _attack_estimates(found, chosen.length, seed)
        estimates += self._candidate_search(model, secret, seed, reasons)
        estimates += _renaming_estimates(model, data.ids[: chosen.count, chosen.fixed :], half, seed)
        return Finding(
            question="privacy",
            title=self.title,
            answer=_answer(model, estimates),
            estimates=tuple(estimates),
            charts=(_chart("place", 0, found, chosen.length, seed), _chart("token", 1, found, chosen.length, seed)),
            method=METHOD.format(public=public.count, secret=secret.count, tried=SEARCHED_TOKENS),
            null=NULL.format(length=chosen.length),
            caveats=(
                "These attacks are simple; a failed attack does not show privacy.",
                *chosen.subsampling_notes,
                *(f"Not measured, {what}: {reason}." for what, reason in reasons.items()),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _candidate_search(
        self, subject: ModelAdapter, secret: Sample, seed: int, reasons: dict[str, str]
    ) -> list[Estimate]:
        """Candidate-search attack; decoders only."""
        ids = secret.inputs(slice(0, 1)).ids
        if not subject.info.causal or ids is None or ids.shape[1] < CONTEXT_TOKENS + SEARCHED_TOKENS:
            reasons["candidate search"] = "a token's vector depends on later tokens, which the attacker does not know"
            return []
        layer = max(1, subject.info.layers // 2)
        share, own, other = candidate_search_attack(subject, ids[0], layer, self.candidates, seed)
        chance = 1 / ((self.candidates + 1) * (CONTEXT_TOKENS + SEARCHED_TOKENS))
        return [
            Estimate(
                name=f"tokens recovered by candidate search, layer {layer}", value=share, null=chance, unit="share"
            ),
            Estimate(
                name="distance of the correct candidate", value=own, null=other, unit="null: nearest wrong candidate"
            ),
        ]


def _remaining(chosen: Sample, first: int) -> Sample:
    given = chosen.inputs(slice(first, chosen.count))
    return Sample(given.ids, None, chosen.fixed, None)


def _equivariance_estimates(
    subject: ModelAdapter, short: Sample, seed: int, reasons: dict[str, str]
) -> list[Estimate]:
    errors, missing = equivariance_errors(subject, short, seed)
    reasons |= missing
    kept = {name: values for name, values in errors.items() if name.startswith("tokens")}
    return [
        mean_estimate(f"change, {name} permuted and undone", values, seed, RELATIVE_UNIT)
        for name, values in kept.items()
    ]


def _transformation_estimates(
    subject: ModelAdapter, few: Sample, seed: int, reasons: dict[str, str]
) -> list[Estimate]:
    estimates = []
    try:
        found: FeatureErrors = transformed_query_errors(subject, few.inputs(slice(0, few.count)), 0, seed)
        errors = {
            "permuted": found.permuted,
            "rotated": found.rotated,
            "rotated around the all-ones vector": found.level,
        }
        norm = {"none": "no norm", "rms": "an RMS norm", "layer": "a layer norm"}[found.norm]
        estimates += [
            Estimate(name=f"change of queries after {norm}, columns {how}", value=value, null=0.0, unit=RELATIVE_UNIT)
            for how, value in errors.items()
        ]
    except NotApplicable as reason:
        reasons["transformed columns"] = str(reason)
    try:
        width = _head_width(subject)
        found_by = permuted_channel_errors(subject, few, width, seed)
        estimates += [
            Estimate(name=f"change, channels permuted {how}", value=value, null=0.0, unit=RELATIVE_UNIT)
            for how, value in found_by.items()
        ]
    except NotApplicable as reason:
        reasons["permuted channels"] = str(reason)
    return estimates


def _head_width(subject: ModelAdapter) -> int:
    try:
        return subject.projection(0).query.shape[-1]
    except NotApplicable:
        return subject.info.width // subject.info.heads


def _attack_estimates(found: Mapping[str, tuple[ndarray, ndarray]], length: int, seed: int) -> list[Estimate]:
    estimates = []
    for name, (places, tokens) in found.items():
        for what, values, chance in (("positions", places, 1 / length), ("tokens", tokens, None)):
            layer = int(values.mean(0).argmax())
            for where, own in ((f"layer {layer}", values[:, layer]), ("last layer", values[:, -1])):
                estimates.append(mean_estimate(f"{what} recovered, {name}, {where}", own, seed, "share", chance))
    return estimates


def _renaming_estimates(subject: ModelAdapter, body: Int[Tensor, "texts n"], half: int, seed: int) -> list[Estimate]:
    share = frequency_analysis(body[:half], body[half:], subject.info.vocabulary, seed)
    chance = 1 / subject.info.vocabulary
    return [
        Estimate(
            name="tokens recovered from renamed ids by frequency analysis", value=share, null=chance, unit="share"
        )
    ]


def _chart(what: str, place: int, found: Mapping[str, tuple[ndarray, ndarray]], length: int, seed: int) -> Chart:
    values = {name: pair[place] for name, pair in found.items()}
    layers = range(next(iter(values.values())).shape[1])
    lines = [mean_line(name, layers, one, seed) for name, one in values.items()]
    if what == "place":
        ends = (0.0, float(len(layers) - 1))
        lines.append(Line(name="by chance", x=ends, y=(1 / length, 1 / length), null=True))
    caption = (
        "Each row is classified by the nearest class mean over other texts. Layer 0 is the input of the first layer."
    )
    title = "Positions recovered from permuted rows" if what == "place" else "Tokens recovered from permuted rows"
    return Chart(title=title, x="layer", y="share", lines=tuple(lines), caption=caption)


def _answer(subject: ModelAdapter, estimates: list[Estimate]) -> str:
    found, sentences = {one.name: one for one in estimates}, []
    blind = rounding_tolerance(subject.info.dtype)
    exact = [one for one in estimates if one.name.startswith("change, tokens") and one.value <= blind]
    if exact:
        what = exact[0].name.removeprefix("change, ").removesuffix(" permuted and undone")
        sentences.append(f"Same output: {what} permuted and undone change it by {exact[0].value:.1g} of its norm.")
    elif f"change, {exact_arm(subject.info).name} permuted and undone" in found:
        sentences.append("Different output: undoing the permutation does not restore it.")
    else:
        sentences.append("Equivariance under all sources of order permuted together could not be measured.")
    best, places = (
        max(one.value for one in estimates if one.name.startswith(f"{what} recovered, rows permuted"))
        for what in ("tokens", "positions")
    )
    sentences.append(
        f"It is not private: an attacker who knows the model recovers {format_percent(best)} of the tokens and "
        f"{format_percent(places)} of the positions from permuted rows of its residual stream"
        + (
            "."
            if (by := _candidate_search_share(found)) is None
            else f", and {format_percent(by)} of tokens by candidate search."
        )
    )
    return " ".join(sentences)


def _candidate_search_share(found: Mapping[str, Estimate]) -> float | None:
    return next(
        (one.value for name, one in found.items() if name.startswith("tokens recovered by candidate search")), None
    )
