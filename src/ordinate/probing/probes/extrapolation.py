"""Length extrapolation: longer contexts of one document, shifted positions, and precision of large positions."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.checks import need_positive
from ordinate.core.finding import Chart, Estimate, Finding, Grade
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.probing._adapter import ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import (
    describe_effects,
    format_estimate,
    format_value,
    mean_estimate,
    mean_line,
    sample_caveats,
)
from ordinate.probing.measures.grading import corrected_level
from ordinate.probing.measures.longer_context import (
    half_window,
    increase_by_context,
    token_losses_by_position,
    windowed_losses,
)
from ordinate.probing.measures.measured import Measured, missing_parts
from ordinate.probing.measures.perturbation_loss import Metric, NextTokenLoss, PerText, metric_for
from ordinate.probing.measures.position_precision import measure_precision, precision_table
from ordinate.probing.measures.samples import (
    ForwardBudget,
    Sample,
    intervention_sample,
    observation_sample,
    truncated,
)

BINS = 32
# increase of the loss that counts as failure [nats per token]
SIZE = 0.1
METHOD = (
    "Context: {whole}; the same tokens of a document are read from its beginning, and from windows no longer than "
    "the trained length, which overlap by half, and the losses of the last half window before each length are "
    "compared. Grade: at {level:.3f} confidence for each length (Bonferroni); an increase of {size} nats per token "
    "is a failure. Shifted: all position ids of {few} are increased, and the {what} is compared. Precision: the "
    "error of a position, and of its sines and cosines, in low-precision types, by arithmetic; for the model, the "
    "error of its relative rotations at large positions compared with position 0, or the rounding error of its "
    "position embeddings. Intervals: 95 %, bootstrap over texts."
)
NULL = (
    "A model that reads as well beyond its trained length: no increase when a document is read from its beginning, "
    "and none under any shift."
)


@dataclass(frozen=True)
class LongerContext:
    """What becomes of the loss with more context than in training.

    Args:
        estimates: the increase at each length, the shortest first.
        corrected: the same with corrected intervals.
        charts: loss by position.
        reason: why nothing was measured; empty: it was.
    """

    estimates: tuple[Estimate, ...] = ()
    corrected: tuple[Estimate, ...] = ()
    charts: tuple[Chart, ...] = ()
    reason: str = ""

    def decide(self) -> tuple[Grade, Estimate | None]:
        """Yes: no length fails. No: the shortest fails. Weakly: it degrades, or only longer ones fail."""
        if not self.estimates:
            return "cannot be told", None
        failing = [one.graded(SIZE) for one in self.corrected]
        if set(failing) == {"no"}:
            return "yes", self.estimates[-1]
        worst = failing.index("yes") if "yes" in failing else failing.index("weakly") if "weakly" in failing else -1
        if failing[0] == "cannot be told" or worst < 0:
            return "cannot be told", self.estimates[failing.index("cannot be told")]
        return "no" if failing[0] == "yes" else "weakly", self.estimates[worst]


class Extrapolation(Probe):
    """Length extrapolation of a model, and precision of its positions.

    Args:
        times: lengths of context, as multiples of the trained length; those beyond the texts or the model's maximum
            length are left out.
        shifts: shifts of all position ids [tokens]; None: 1, 8, 64 ... 32768, up to the model's maximum length.
        trained_length: tokens of a training sequence; None: as the study or config.json of the model says.
    """

    title = "Can it read beyond the length it was trained at?"
    beyond_training = True

    def __init__(
        self,
        *,
        times: tuple[int, ...] = (2, 4),
        shifts: tuple[int, ...] | None = None,
        trained_length: int | None = None,
    ) -> None:
        if trained_length is not None:
            need_positive("the trained length", trained_length)
        self.times, self.shifts, self.trained_length = times, shifts, trained_length

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts = time.perf_counter(), model.info
        if data.ids is None:
            raise NotApplicable("this probe needs texts; images have a fixed size")
        trained = self.trained_length or model.trained_length
        # one pass over whole texts, and windows that cover every token twice
        whole = observation_sample(facts, data, ForwardBudget(3))
        short = truncated(data, max(8, trained or data.ids.shape[1]))
        few = intervention_sample(facts, short, ForwardBudget(1 + len(self._allowed_shifts(facts))))
        scale = metric_for(model, few, seed)
        context = self._context(scale, whole, trained, seed)
        on_progress(fraction(0.5))
        shifts = self._shifts(scale, on_progress)
        shifted = [
            mean_estimate(f"increase, positions shifted by {by:,}", values, seed, scale.unit)
            for by, values in shifts.value.items()
        ]
        precision = measure_precision(model, data.ids[0])
        exact, more = precision.value
        grade, effect = context.decide()
        if trained is not None and facts.max_length is not None and facts.max_length <= trained:
            grade = "no"
        words = {"whole": whole.description, "few": few.description, "what": scale.name, "size": SIZE}
        return Finding(
            question="extrapolation",
            title=self.title,
            grade=grade,
            effect=effect,
            answer=_answer(facts, trained, context, shifted),
            estimates=(*context.estimates, *shifted, *exact),
            tables=(precision_table(),),
            charts=(*context.charts, *_shift_chart(scale, shifts.value, seed), *more),
            method=METHOD.format(level=corrected_level(max(1, len(context.estimates))), **words),
            null=NULL,
            caveats=sample_caveats([whole, few], missing_parts(shifts, precision)),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _context(self, scale: Metric, whole: Sample, trained: int | None, seed: int) -> LongerContext:
        """Loss of the same tokens with a context beyond the trained length and within it."""
        if not isinstance(scale, NextTokenLoss):
            return LongerContext(
                reason="It does not predict the next token, so its loss has no context to grow with."
            )
        if trained is None:
            return LongerContext(
                reason="The length of its training texts is not known: give it as trained_length=128 (or the like)."
            )
        lengths = [times * trained for times in sorted(self.times) if times * trained <= whole.length]
        if not lengths or half_window(whole, trained) < 2:
            return LongerContext(
                reason=f"It was trained at {trained:,} tokens, and the texts have {whole.length:,}: give texts of "
                f"{min(self.times, default=2)} times its trained length or more."
            )
        read = token_losses_by_position(scale.subject, whole)
        windowed = windowed_losses(scale.subject, whole, trained)
        rise, half = increase_by_context(read, windowed, whole, trained), half_window(whole, trained)
        estimates, corrected = [], []
        for length in lengths:
            # the last whole chunk before this length; the first one begins after half a window
            end = ((length - whole.fixed) // half - 1) * half
            values = rise[:, end - half : end].mean(1)
            name = f"increase with {length:,} tokens of context in place of {trained:,}"
            estimates.append(mean_estimate(name, values, seed, "nats per token"))
            level = corrected_level(len(lengths))
            corrected.append(mean_estimate(name, values, seed, "nats per token", level=level))
        chart = _position_chart(read, windowed, whole, trained, seed)
        return LongerContext(tuple(estimates), tuple(corrected), (chart,))

    def _allowed_shifts(self, facts: ModelInfo) -> list[int]:
        """Shifts below the maximum length."""
        wanted = self.shifts or tuple(8**power for power in range(6))
        return [by for by in wanted if facts.max_length is None or by < facts.max_length]

    def _shifts(self, scale: Metric, on_progress: OnProgress) -> Measured[dict[int, PerText]]:
        end, length = scale.subject.info.max_length, scale.sample.length
        room = [by for by in self._allowed_shifts(scale.subject.info) if end is None or by + length <= end]
        if not room:
            reason = f"it has no positions beyond {end}, and texts of {length} tokens leave no room"
            return Measured({}, {"shifted texts": reason})
        plain, found, missing = scale.per_text(), dict[int, PerText](), dict[str, str]()
        for place, by in enumerate(room):
            order = (torch.arange(length) + by).expand(scale.sample.count, -1)
            try:
                found[by] = scale.per_text(order, tokens=False, positions=True) - plain
            except NotApplicable as reason:
                missing[f"positions shifted by {by}"] = str(reason)
                break
            on_progress(fraction(0.5 + 0.5 * (place + 1) / len(room)))
        return Measured(found, missing)


def _position_chart(
    read: Float[ndarray, "texts places"],
    windowed: Float[ndarray, "texts scored"],
    chosen: Sample,
    trained: int,
    seed: int,
) -> Chart:
    first = chosen.fixed + half_window(chosen, trained)
    lines = []
    for name, values, start in (
        ("from the beginning", read, 2),
        (f"from the last {trained:,} tokens at most", windowed, first),
    ):
        edges = np.unique(np.linspace(0, values.shape[1], BINS + 1).round().astype(int))
        means = np.add.reduceat(values, edges[:-1], 1) / np.diff(edges)
        across = (edges[:-1] + edges[1:] - 1) / 2 + start
        lines.append(mean_line(name, across.tolist(), means, seed))
    caption = (
        f"Mean loss of the same documents. It was trained at {trained:,} tokens: where the first line is above the "
        "second beyond that, more context than in training does harm."
    )
    return Chart(title="Loss by position", x="position [tokens]", y="loss [nats per token]", lines=tuple(lines),
                 caption=caption)  # fmt: skip


def _shift_chart(scale: Metric, shifts: dict[int, PerText], seed: int) -> list[Chart]:
    if len(shifts) < 2:
        return []
    line = mean_line("shifted", list(shifts), np.stack(list(shifts.values()), 1), seed)
    caption = "The same texts with all position ids increased. Nothing changes if only relative positions matter."
    return [Chart(title="Effect of shifting positions", x="shifted by [tokens]", y=f"increase [{scale.unit}]",
                  lines=(line,), caption=caption, across="log")]  # fmt: skip


def _answer(facts: ModelInfo, trained: int | None, context: LongerContext, shifted: list[Estimate]) -> str:
    sentences = []
    if trained is not None and facts.max_length is not None and facts.max_length <= trained:
        sentences.append(f"It has no positions beyond its trained length of {trained:,} tokens.")
    elif context.reason:
        sentences.append(context.reason)
    else:
        rises = [f"{format_value(one)} {one.name.removeprefix('increase ')}" for one in context.estimates]
        sentences.append(
            f"It was trained at {trained:,} tokens. The loss of the same tokens of a document increases by "
            f"{', by '.join(rises)} [nats per token]."
        )
    if shifted:
        one = shifted[-1]
        shift = f"Shifting all positions by {one.name.removeprefix('increase, positions shifted by ')}"
        if abs(one.value) < 1e-3:
            why = facts.position_phrase if facts.position == "none" else "only relative positions matter"
            sentences.append(f"{shift} changes nothing: {why}.")
        elif one.low is None or one.high is None or one.low <= 0 <= one.high:
            sentences.append(f"{shift} has no measurable effect: {format_estimate(one)}.")
        else:
            sentences.append(f"{describe_effects({shift: one})}.")
    if facts.max_length and facts.max_length != trained:
        sentences.append(f"Its maximum length is {facts.max_length:,} tokens.")
    return " ".join(sentences)
