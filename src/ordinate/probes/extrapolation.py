"""What becomes of a model beyond the length it was trained at."""

import time

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.finding import Chart, Estimate, Finding
from ordinate.measures.harm import Gauge, Numbers, Surprise, gauge, nats
from ordinate.measures.precision import precision, rounding_table
from ordinate.measures.presenting import Passes, Sample, changed, looked_at
from ordinate.measures.telling import costs, estimate_of, line_of, said
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Facts, Subject, Unfit

BINS = 16
METHOD = (
    "By position: the loss of each token of {whole}, and of texts {times} times as long that are joined of them. "
    "Joined: the tokens of a text are read after others and by themselves, and compared. Shifted: {few} stand "
    "further back, and the {what} is compared. Rounding: what is left of a position, and of its sines and cosines, "
    "when it is held in fewer digits, by arithmetic; and of the model, by how much unit vectors far on are turned "
    "otherwise than those in front, or rows of its table moved by rounding. Intervals: 95 %, bootstrap over texts. "
    "Position 0 is left out."
)
NULL = "A model that reads as well anywhere: no rise however far a text is shifted, and none after other texts."


class Extrapolation(Probe):
    """What becomes of a model beyond the length it was trained at, and of positions in few digits.

    Args:
        times: how many texts are joined to a longer one; those that the model cannot take are left out.
        shifts: how far texts are shifted [tokens]; None: 1, 8, 64 and so on to 32768, or to the model's end.
    """

    title = "What becomes of it beyond the length it was trained at?"

    def __init__(self, *, times: tuple[int, ...] = (2, 4), shifts: tuple[int, ...] | None = None) -> None:
        self.times, self.shifts = times, shifts

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began, facts, reasons = time.perf_counter(), subject.facts, dict[str, str]()
        if material.ids is None:
            raise Unfit("an image has one size; this question is asked of texts")
        fitting = [times for times in self.times if _fits(facts, material.ids.shape, times)]
        whole = looked_at(facts, material, Passes(1 + len(fitting)))
        fitting = [times for times in fitting if whole.texts >= 2 * times]
        few = changed(facts, material, Passes(1 + len(self._wanted(facts))))
        scale = gauge(subject, few, seed)
        charts, estimates = _further(scale, whole, fitting, seed, reasons)
        for times in sorted({*self.times} - {*fitting}):
            reasons[f"texts {times} times as long"] = (
                f"it takes no more than {facts.max_length} tokens, and two such texts are needed"
            )
        tell(0.5)
        shifts = self._shifts(scale, seed, reasons, tell)
        estimates += [
            estimate_of(f"rise, shifted by {by:,}", values, seed, scale.unit) for by, values in shifts.items()
        ]
        if not estimates:
            raise Unfit("; ".join(f"{what}: {reason}" for what, reason in reasons.items()))
        exact, more = precision(subject, material.ids[0], reasons)
        estimates += exact
        words = {"whole": whole.size, "few": few.size, "what": scale.name}
        return Finding(
            question="extrapolation",
            title=self.title,
            answer=_answer(facts, estimates),
            estimates=tuple(estimates),
            tables=(rounding_table(),),
            charts=(*charts, *_by_shift(scale, shifts, seed), *more),
            method=METHOD.format(times=" and ".join(map(str, fitting)) or "no", **words),
            null=NULL,
            caveats=(*whole.left_out, *few.left_out, *_caveats(fitting, reasons)),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _wanted(self, facts: Facts) -> list[int]:
        """How far texts are shifted, if they leave room."""
        wanted = self.shifts or tuple(8**power for power in range(6))
        return [by for by in wanted if facts.max_length is None or by < facts.max_length]

    def _shifts(self, scale: Gauge, seed: int, reasons: dict[str, str], tell: Tell) -> dict[int, Numbers]:
        end, length = scale.subject.facts.max_length, scale.sample.length
        room = [by for by in self._wanted(scale.subject.facts) if end is None or by + length <= end]
        if not room:
            reasons["shifted texts"] = f"it has no positions beyond {end}, and texts of {length} fill them"
            return {}
        plain, found = scale.measure(), {}
        for place, by in enumerate(room):
            order = (torch.arange(length) + by).expand(scale.sample.texts, -1)
            try:
                found[by] = scale.measure(order, tokens=False, positions=True) - plain
            except Unfit as reason:
                reasons[f"shifted by {by}"] = str(reason)
                break
            tell(0.5 + 0.5 * (place + 1) / len(room))
        return found


def places(subject: Subject, chosen: Sample) -> Float[ndarray, "texts places"]:
    """The loss of each token but the first two [nats]."""
    found = []
    for rows in chosen.parts(subject.facts):
        given = chosen.given(rows)
        logits = subject.read(given).logits
        if logits is None or given.ids is None:
            raise Unfit("it predicts no next token")
        found.append(nats(logits[:, :-1], given.ids[:, 1:])[:, 1:].double().cpu())
    return torch.cat(found).numpy()


def _further(
    scale: Gauge, chosen: Sample, fitting: list[int], seed: int, reasons: dict[str, str]
) -> tuple[list[Chart], list[Estimate]]:
    """Loss by position, of texts and of longer ones that are joined of them."""
    if not isinstance(scale, Surprise):
        reasons["loss by position"] = "it predicts no next token"
        return [], []
    own = places(scale.subject, chosen)
    longer = {times: _joined(scale.subject, chosen, times, reasons) for times in fitting}
    found = {times: values for times, values in longer.items() if values is not None}
    estimates = [_rise(times, values, own, seed) for times, values in found.items()]
    return [_by_place({1: own, **found}, seed, scale.subject.facts)], estimates


def _fits(facts: Facts, size: tuple[int, ...], times: int) -> bool:
    texts, length = size
    return times * length <= (facts.max_length or times * length) and texts >= 2 * times


def _joined(subject: Subject, chosen: Sample, times: int, reasons: dict[str, str]) -> ndarray | None:
    """The loss of each token of longer texts; the first token of a text stands in front once."""
    ids = chosen.given(slice(0, chosen.texts // times * times)).ids
    if ids is None:
        return None
    body = ids[:, chosen.fixed :].reshape(len(ids) // times, -1)
    long = Sample(torch.cat([ids[::times, : chosen.fixed], body], 1), None, chosen.fixed, None)
    try:
        return places(subject, long)
    except Unfit as reason:
        reasons[f"texts {times} times as long"] = str(reason)
        return None


def _rise(times: int, values: ndarray, own: ndarray, seed: int) -> Estimate:
    """What the last text of each joined one loses beside itself alone, over the places that both have."""
    alone = own[times - 1 : len(values) * times : times]
    # the first tokens of a text lose nothing by something before them
    later = alone.shape[1] // 2
    rise = values[:, -later:].mean(1) - alone[:, -later:].mean(1)
    return estimate_of(f"rise, read {times} times as far in", rise, seed, "nats a token")


def _by_place(lengths: dict[int, ndarray], seed: int, facts: Facts) -> Chart:
    lines = []
    for times, values in lengths.items():
        edges = np.unique(np.linspace(0, values.shape[1], BINS * times + 1).round().astype(int))
        means = np.add.reduceat(values, edges[:-1], 1) / np.diff(edges)
        across = (edges[:-1] + edges[1:] + 3) / 2
        lines.append(line_of("texts" if times == 1 else f"{times} texts joined", across.tolist(), means, seed))
    end = f" It takes no more than {facts.max_length:,} tokens." if facts.max_length else ""
    caption = f"Mean loss by place.{end} A line that rises where no text was as long in training is lost there."
    return Chart(title="Loss by position", x="position [tokens]", y="loss [nats a token]", lines=tuple(lines),
                 caption=caption)  # fmt: skip


def _by_shift(scale: Gauge, shifts: dict[int, Numbers], seed: int) -> list[Chart]:
    if len(shifts) < 2:
        return []
    line = line_of("shifted", list(shifts), np.stack(list(shifts.values()), 1), seed)
    caption = "The same texts with all their positions moved on. Where only distances count nothing changes."
    return [Chart(title="The same texts further back", x="shifted by [tokens]", y=f"rise [{scale.unit}]",
                  lines=(line,), caption=caption, across="log")]  # fmt: skip


def _answer(facts: Facts, estimates: list[Estimate]) -> str:
    further = [one for one in estimates if one.name.startswith("rise, read")]
    shifted = [one for one in estimates if one.name.startswith("rise, shifted")]
    told = []
    if further:
        one = further[-1]
        worse = one.low is not None and one.low > 0
        how = "It loses its way" if worse and one.value > 0.5 else "It reads worse" if worse else "It reads no worse"
        told.append(f"{how} further in: {costs({'being ' + one.name.removeprefix('rise, '): one})}.")
    if shifted:
        one = shifted[-1]
        if abs(one.value) < 1e-3:
            why = facts.entering if facts.position == "none" else "only distances count"
            told.append(f"{one.name.removeprefix('rise, ').capitalize()}, texts read the same: {why}.")
        elif one.low is None or one.high is None or one.low <= 0 <= one.high:
            told.append(f"Being {one.name.removeprefix('rise, ')} makes no measurable difference: {said(one)}.")
        else:
            told.append(f"{costs({'Being ' + one.name.removeprefix('rise, '): one})}.")
    if facts.max_length:
        told.append(f"It takes no more than {facts.max_length:,} tokens.")
    return " ".join(told)


def _caveats(fitting: list[int], reasons: dict[str, str]) -> list[str]:
    found = [f"Not measured, {what}: {reason}." for what, reason in reasons.items()]
    found += ["How long the texts of its training were is not written in a model; its longest input is but a hint."]
    if fitting:
        found.append(
            "Joined texts have nothing to do with each other: a rise may be distraction as well as distance."
        )
    return found
