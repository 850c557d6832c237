"""Privacy of permuted inputs: exactness of undoing a permutation, and reconstruction attacks on hidden states."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from ordinate.core.finding import Chart, Estimate, Finding, Grade, Line
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import (
    RELATIVE_UNIT,
    format_percent,
    mean_estimate,
    mean_line,
    sample_caveats,
)
from ordinate.probing.measures.grading import Evidence, corrected_level, decide, mean_evidence
from ordinate.probing.measures.input_obfuscation import (
    frequency_analysis,
    permuted_channel_errors,
    transformed_query_errors,
)
from ordinate.probing.measures.measured import Measured, attempt, missing_parts
from ordinate.probing.measures.permutation_equivariance import (
    SHORT_LENGTH,
    SHORT_TEXTS,
    Equivariance,
    equivariance_errors,
)
from ordinate.probing.measures.reconstruction_attack import (
    CONTEXT_TOKENS,
    SEARCHED_TEXTS,
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
    "permuted too, vectors are sorted first. The layer is chosen by attacking one half of the public texts with the "
    "other, so that the secret texts decide about one layer only. Tokens are compared with always guessing the most "
    "frequent public one. Candidate search: {tried} rows of each of {searched} texts are compared with the model's "
    "vectors of candidate tokens. Renaming: token ids are renamed, and recovered by frequency analysis. Grade: no "
    "if an attack on permuted rows recovers {size:.0%} more than guessing, at {level:.3f} confidence each "
    "(Bonferroni); weakly if it recovers less, but surely more than guessing; attacks that fail show nothing. "
    "Intervals: 95 %, bootstrap over texts."
)
NULL = (
    "Equivariance: rounding error. Reconstruction: one position in {length}; tokens as many as by always guessing "
    "the most frequent one."
)
ATTACKS_CAVEAT = "These attacks are simple; a failed attack does not show privacy."
# share of tokens or positions beyond guessing from which an attack succeeds
SIZE = 0.1
# the grade of "is it hidden" by that of "does an attack succeed"
HIDDEN: Mapping[Grade, Grade] = MappingProxyType(
    {"yes": "no", "weakly": "weakly", "no": "cannot be told", "cannot be told": "cannot be told"}
)
ROWS, COLUMNS = "rows permuted", "rows and columns permuted"


@dataclass(frozen=True, eq=False)
class Attack:
    """One attack at the layer that was chosen for it.

    Args:
        what: positions or tokens.
        how: what was permuted.
        layer: the layer, counted from 0, the input of the first.
        shares: recovered share of each secret text in every layer.
        guessed: the share recovered by guessing.
    """

    what: str
    how: str
    layer: int
    shares: Float[ndarray, "texts layers"]
    guessed: Float[ndarray, "texts"]

    @property
    def name(self) -> str:
        """Name of the estimate."""
        return f"{self.what} recovered beyond guessing, {self.how}, layer {self.layer}"

    @property
    def excess(self) -> Float[ndarray, "texts"]:
        """Share recovered in the chosen layer beyond guessing."""
        return self.shares[:, self.layer] - self.guessed


class Privacy(Probe):
    """Permute or rotate inputs, undo it on the output, and attack the permuted hidden states.

    Args:
        candidates: wrong candidate tokens per position in the candidate search.
    """

    title = "Does permuting the input hide it?"

    def __init__(self, *, candidates: int = 63) -> None:
        self.candidates = candidates

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began = time.perf_counter()
        if data.ids is None:
            raise NotApplicable("the attack reconstructs texts; got only images")
        chosen = subsample(model.info, truncated(data, MAX_LENGTH), ForwardBudget(2))
        half = chosen.count // 2
        if half < 2:
            raise NotApplicable(f"the attack needs four texts or more; got {chosen.count}; pass more")
        secret, public = chosen.truncated(half), _remaining(chosen, half)
        equivariance = equivariance_errors(model, chosen.truncated(SHORT_TEXTS, SHORT_LENGTH), seed)
        on_progress(fraction(0.2))
        others = _transformation_estimates(model, chosen.truncated(2), seed)
        on_progress(fraction(0.3))
        attacks = _attacks(AttackData.of(model, secret, public))
        on_progress(fraction(0.8))
        search = attempt("candidate search", lambda: self._candidate_search(model, secret, seed))
        searched, missing = search.value, {**equivariance.missing, **missing_parts(others, search)}
        evidence = _evidence(attacks, searched, seed)
        found, effect = decide([one for one in evidence if COLUMNS not in one.estimate.name])
        estimates = [one.estimate for one in evidence] + _attack_estimates(attacks, seed)
        estimates += [] if searched is None else searched.distances
        estimates += _equivariance_estimates(equivariance, seed) + others.value
        estimates += _renaming_estimates(model, data.ids[: chosen.count, chosen.fixed :], half, seed)
        return Finding(
            question="privacy",
            title=self.title,
            grade=HIDDEN[found],
            effect=effect,
            answer=_answer(equivariance, attacks, searched, HIDDEN[found]),
            estimates=tuple(estimates),
            charts=tuple(_chart(what, attacks, seed) for what in ("positions", "tokens")),
            method=_method(secret, public, len(evidence)),
            null=NULL.format(length=chosen.length - chosen.fixed),
            caveats=(ATTACKS_CAVEAT, *sample_caveats([chosen], missing)),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _candidate_search(self, subject: ModelAdapter, secret: Sample, seed: int) -> "CandidateSearch":
        """Search for each token the candidate whose hidden state is nearest; decoders only."""
        ids = secret.inputs(slice(0, SEARCHED_TEXTS)).ids
        if not subject.info.causal or ids is None or ids.shape[1] < CONTEXT_TOKENS + SEARCHED_TOKENS:
            raise NotApplicable("a token's vector depends on later tokens, which the attacker does not know")
        layer = max(1, subject.info.layers // 2)
        found = [candidate_search_attack(subject, text, layer, self.candidates, seed) for text in ids]
        chance = 1 / ((self.candidates + 1) * (CONTEXT_TOKENS + SEARCHED_TOKENS))
        shares, own, other = (np.array(column) for column in zip(*found, strict=True))
        return CandidateSearch(layer, shares, chance, float(np.median(own)), float(np.median(other)))


@dataclass(frozen=True, eq=False)
class CandidateSearch:
    """The result of the candidate search.

    Args:
        layer: the layer.
        shares: recovered share of the tokens of each text.
        chance: the share expected by chance.
        own: median distance of the correct candidate.
        other: median distance of the nearest wrong one.
    """

    layer: int
    shares: Float[ndarray, "texts"]
    chance: float
    own: float
    other: float

    @property
    def distances(self) -> list[Estimate]:
        """The distance of the correct candidate beside that of the nearest wrong one."""
        what = "distance of the correct candidate"
        return [Estimate(name=what, value=self.own, null=self.other, unit="null: nearest wrong candidate")]


def _method(secret: Sample, public: Sample, tests: int) -> str:
    words = {"public": public.count, "secret": secret.count, "tried": SEARCHED_TOKENS, "size": SIZE}
    return METHOD.format(**words, searched=min(SEARCHED_TEXTS, secret.count), level=corrected_level(tests))


def _remaining(chosen: Sample, first: int) -> Sample:
    given = chosen.inputs(slice(first, chosen.count))
    return Sample(given.ids, None, chosen.fixed, None)


def _equivariance_estimates(found: Equivariance, seed: int) -> list[Estimate]:
    null = None if found.noise is None else float(found.noise.mean())
    return [
        mean_estimate(f"change, {name} permuted and undone", values, seed, RELATIVE_UNIT, null)
        for name, values in found.errors.items()
        if name.startswith("tokens")
    ]


def _transformation_estimates(subject: ModelAdapter, few: Sample, seed: int) -> Measured[list[Estimate]]:
    """Change of the queries under transformed columns, and of the output under permuted channels."""

    def columns() -> list[Estimate]:
        found = transformed_query_errors(subject, few.inputs(slice(0, few.count)), 0, seed)
        errors = {
            "permuted": found.permuted,
            "rotated": found.rotated,
            "rotated around the all-ones vector": found.level,
        }
        norm = {"none": "no norm", "rms": "an RMS norm", "layer": "a layer norm"}[found.norm]
        return [
            Estimate(name=f"change of queries after {norm}, columns {how}", value=value, null=0.0, unit=RELATIVE_UNIT)
            for how, value in errors.items()
        ]

    def channels() -> list[Estimate]:
        found = permuted_channel_errors(subject, few, _head_width(subject), seed)
        return [
            Estimate(name=f"change, channels permuted {how}", value=value, null=0.0, unit=RELATIVE_UNIT)
            for how, value in found.items()
        ]

    parts = attempt("transformed columns", columns, []), attempt("permuted channels", channels, [])
    return Measured([one for part in parts for one in part.value], missing_parts(*parts))


def _head_width(subject: ModelAdapter) -> int:
    try:
        return subject.projection(0).query.shape[-1]
    except NotApplicable:
        return subject.info.width // subject.info.heads


def _attacks(read: AttackData) -> list[Attack]:
    """Attack the secret texts, in the layers that do best among the public ones."""
    made, rehearsal = [], read.rehearsal()
    scored = read.ids.shape[1] - read.fixed
    chance = {"tokens": read.guessed().numpy(), "positions": np.full(len(read.ids), 1 / scored)}
    for how, sort in ((ROWS, False), (COLUMNS, True)):
        tried, found = (nearest_mean_attack(one, sort_columns=sort) for one in (rehearsal, read))
        for what, place in (("tokens", 1), ("positions", 0)):
            layer = int(tried[place].mean(0).argmax())
            made.append(Attack(what, how, layer, found[place].numpy(), chance[what]))
    return made


def _evidence(attacks: Sequence[Attack], searched: CandidateSearch | None, seed: int) -> list[Evidence]:
    """What each attack recovers beyond guessing, with corrected intervals."""
    values = {one.name: (one.excess, 0.0) for one in attacks}
    if searched is not None:
        values[f"tokens recovered by candidate search, layer {searched.layer}"] = (searched.shares, searched.chance)
    return [
        mean_evidence(name, own, seed, "share", null=null, tests=len(values), size=SIZE)
        for name, (own, null) in values.items()
    ]


def _attack_estimates(attacks: Sequence[Attack], seed: int) -> list[Estimate]:
    return [
        mean_estimate(
            f"{one.what} recovered, {one.how}, {where}",
            one.shares[:, layer],
            seed,
            "share",
            float(one.guessed.mean()),
        )
        for one in attacks
        for where, layer in ((f"layer {one.layer}", one.layer), ("last layer", -1))
    ]


def _renaming_estimates(subject: ModelAdapter, body: Int[Tensor, "texts n"], half: int, seed: int) -> list[Estimate]:
    share = frequency_analysis(body[:half], body[half:], subject.info.vocabulary, seed)
    chance = 1 / subject.info.vocabulary
    return [
        Estimate(
            name="tokens recovered from renamed ids by frequency analysis", value=share, null=chance, unit="share"
        )
    ]


def _chart(what: str, attacks: Sequence[Attack], seed: int) -> Chart:
    own = [one for one in attacks if one.what == what]
    layers = range(own[0].shares.shape[1])
    lines = [mean_line(one.how, layers, one.shares, seed) for one in own]
    chance, ends = float(own[0].guessed.mean()), (0.0, float(len(layers) - 1))
    lines.append(Line(name="by guessing", x=ends, y=(chance, chance), null=True))
    caption = (
        "Each row is classified by the nearest class mean over other texts. Layer 0 is the input of the first layer."
    )
    title = f"{what.capitalize()} recovered from permuted rows"
    return Chart(title=title, x="layer", y="share", lines=tuple(lines), caption=caption)


def _answer(
    equivariance: Equivariance, attacks: Sequence[Attack], searched: CandidateSearch | None, grade: Grade
) -> str:
    sentences = []
    exact = equivariance.errors.get(equivariance.exact)
    if exact is None:
        sentences.append("Equivariance under all sources of order permuted together could not be measured.")
    elif equivariance.is_rounding(equivariance.exact):
        sentences.append(
            f"Undone, nothing is lost: {equivariance.exact} permuted and undone change the output by "
            f"{exact.mean():.1g} of its norm."
        )
    else:
        sentences.append("Undoing the permutation does not restore the output.")
    said = {how: _recovered([one for one in attacks if one.how == how]) for how in (ROWS, COLUMNS)}
    by = "" if searched is None else f", and {format_percent(searched.shares.mean())} of tokens by candidate search"
    sentences.append(
        f"An attacker who knows the model recovers {said[ROWS]} from permuted rows of its residual stream{by}; with "
        f"columns permuted too, {said[COLUMNS]}."
    )
    if grade == "cannot be told":
        sentences.append("That is not surely more than guessing, and attacks that fail do not show privacy.")
    return " ".join(sentences)


def _recovered(attacks: Sequence[Attack]) -> str:
    """'71 % of the tokens (guessing: 5 %) and 43 % of the positions (guessing: 2 %)'."""
    return " and ".join(
        f"{format_percent(one.shares[:, one.layer].mean())} of the {one.what} (guessing: "
        f"{format_percent(one.guessed.mean())})"
        for one in attacks
    )
