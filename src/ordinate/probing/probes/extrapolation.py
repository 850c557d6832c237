"""Length extrapolation: loss by position, longer contexts, shifted positions, and precision of large positions."""

import time

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Chart, Estimate, Finding
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.probing._adapter import ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import describe_effects, format_estimate, mean_estimate, mean_line
from ordinate.probing.measures.perturbation_loss import Metric, NextTokenLoss, PerText, metric_for, token_losses
from ordinate.probing.measures.position_precision import measure_precision, precision_table
from ordinate.probing.measures.samples import ForwardBudget, Sample, intervention_sample, observation_sample

BINS = 16
METHOD = (
    "By position: the loss of each token of {whole}, and of concatenations {times} times as long. Context: the "
    "tokens of a text are read after other texts and alone, and compared. Shifted: all position ids of {few} are "
    "increased, and the {what} is compared. Precision: the error of a position, and of its sines and cosines, in "
    "low-precision types, by arithmetic; for the model, the error of its relative rotations at large positions "
    "compared with position 0, or the rounding error of its position embeddings. Intervals: 95 %, bootstrap over "
    "texts. Position 0 is left out."
)
NULL = (
    "A model that does not depend on absolute position or context: no increase under any shift, and none after other "
    "texts."
)


class Extrapolation(Probe):
    """Length extrapolation of a model, and precision of its positions.

    Args:
        times: numbers of texts that are concatenated; those beyond the model's maximum length are left out.
        shifts: shifts of all position ids [tokens]; None: 1, 8, 64 ... 32768, up to the model's maximum length.
    """

    title = "What becomes of it beyond the length it was trained at?"

    def __init__(self, *, times: tuple[int, ...] = (2, 4), shifts: tuple[int, ...] | None = None) -> None:
        self.times, self.shifts = times, shifts

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began, facts, reasons = time.perf_counter(), model.info, dict[str, str]()
        if data.ids is None:
            raise NotApplicable("this probe needs texts; images have a fixed size")
        fitting = [times for times in self.times if _fits(facts, data.ids.shape, times)]
        whole = observation_sample(facts, data, ForwardBudget(1 + len(fitting)))
        fitting = [times for times in fitting if whole.count >= 2 * times]
        few = intervention_sample(facts, data, ForwardBudget(1 + len(self._allowed_shifts(facts))))
        scale = metric_for(model, few, seed)
        charts, estimates = _by_position(scale, whole, fitting, seed, reasons)
        for times in sorted({*self.times} - {*fitting}):
            reasons[f"texts {times} times as long"] = (
                f"two such texts are needed, of at most {facts.max_length} tokens (the maximum length)"
            )
        on_progress(fraction(0.5))
        shifts = self._shifts(scale, seed, reasons, on_progress)
        estimates += [
            mean_estimate(f"increase, positions shifted by {by:,}", values, seed, scale.unit)
            for by, values in shifts.items()
        ]
        if not estimates:
            raise NotApplicable("; ".join(f"{what}: {reason}" for what, reason in reasons.items()))
        exact, more = measure_precision(model, data.ids[0], reasons)
        estimates += exact
        words = {"whole": whole.description, "few": few.description, "what": scale.name}
        return Finding(
            question="extrapolation",
            title=self.title,
            answer=_answer(facts, estimates),
            estimates=tuple(estimates),
            tables=(precision_table(),),
            charts=(*charts, *_shift_chart(scale, shifts, seed), *more),
            method=METHOD.format(times=" and ".join(map(str, fitting)) or "no", **words),
            null=NULL,
            caveats=(*whole.subsampling_notes, *few.subsampling_notes, *_caveats(fitting, reasons)),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _allowed_shifts(self, facts: ModelInfo) -> list[int]:
        """Shifts below the maximum length."""
        wanted = self.shifts or tuple(8**power for power in range(6))
        return [by for by in wanted if facts.max_length is None or by < facts.max_length]

    def _shifts(
        self, scale: Metric, seed: int, reasons: dict[str, str], on_progress: OnProgress
    ) -> dict[int, PerText]:
        end, length = scale.subject.info.max_length, scale.sample.length
        room = [by for by in self._allowed_shifts(scale.subject.info) if end is None or by + length <= end]
        if not room:
            reasons["shifted texts"] = f"it has no positions beyond {end}, and texts of {length} tokens leave no room"
            return {}
        plain, found = scale.per_text(), {}
        for place, by in enumerate(room):
            order = (torch.arange(length) + by).expand(scale.sample.count, -1)
            try:
                found[by] = scale.per_text(order, tokens=False, positions=True) - plain
            except NotApplicable as reason:
                reasons[f"positions shifted by {by}"] = str(reason)
                break
            on_progress(fraction(0.5 + 0.5 * (place + 1) / len(room)))
        return found


def token_losses_by_position(subject: ModelAdapter, chosen: Sample) -> Float[ndarray, "texts places"]:
    """Loss of each token from the third on [nats]."""
    found = []
    for rows in chosen.batches(subject.info):
        given = chosen.inputs(rows)
        logits = subject.forward(given).logits
        if logits is None or given.ids is None:
            raise NotApplicable("the model does not predict the next token")
        found.append(token_losses(logits[:, :-1], given.ids[:, 1:])[:, 1:].double().cpu())
    return torch.cat(found).numpy()


def _by_position(
    scale: Metric, chosen: Sample, fitting: list[int], seed: int, reasons: dict[str, str]
) -> tuple[list[Chart], list[Estimate]]:
    """Loss by position, of texts and of their concatenations."""
    if not isinstance(scale, NextTokenLoss):
        reasons["loss by position"] = "the model does not predict the next token"
        return [], []
    own = token_losses_by_position(scale.subject, chosen)
    longer = {times: _concatenated_losses(scale.subject, chosen, times, reasons) for times in fitting}
    found = {times: values for times, values in longer.items() if values is not None}
    estimates = [_context_effect(times, values, own, seed) for times, values in found.items()]
    return [_position_chart({1: own, **found}, seed, scale.subject.info)], estimates


def _fits(facts: ModelInfo, size: tuple[int, ...], times: int) -> bool:
    texts, length = size
    return times * length <= (facts.max_length or times * length) and texts >= 2 * times


def _concatenated_losses(
    subject: ModelAdapter, chosen: Sample, times: int, reasons: dict[str, str]
) -> ndarray | None:
    """Loss of each token of concatenated texts; the first token (BOS) is kept only at the beginning."""
    ids = chosen.inputs(slice(0, chosen.count // times * times)).ids
    if ids is None:
        return None
    body = ids[:, chosen.fixed :].reshape(len(ids) // times, -1)
    long = Sample(torch.cat([ids[::times, : chosen.fixed], body], 1), None, chosen.fixed, None)
    try:
        return token_losses_by_position(subject, long)
    except NotApplicable as reason:
        reasons[f"texts {times} times as long"] = str(reason)
        return None


def _context_effect(times: int, values: ndarray, own: ndarray, seed: int) -> Estimate:
    """Loss increase of the last text of each concatenation over the same text alone, at the positions of both."""
    alone = own[times - 1 : len(values) * times : times]
    # the second half only: the first tokens of a text profit from any context before them
    later = alone.shape[1] // 2
    rise = values[:, -later:].mean(1) - alone[:, -later:].mean(1)
    return mean_estimate(f"increase, context {times} times as long", rise, seed, "nats per token")


def _position_chart(lengths: dict[int, ndarray], seed: int, facts: ModelInfo) -> Chart:
    lines = []
    for times, values in lengths.items():
        edges = np.unique(np.linspace(0, values.shape[1], BINS * times + 1).round().astype(int))
        means = np.add.reduceat(values, edges[:-1], 1) / np.diff(edges)
        across = (edges[:-1] + edges[1:] + 3) / 2
        lines.append(
            mean_line("texts" if times == 1 else f"{times} texts concatenated", across.tolist(), means, seed)
        )
    end = f" Its maximum length is {facts.max_length:,} tokens." if facts.max_length else ""
    caption = (
        f"Mean loss by position.{end} A line that rises beyond the training length shows that the model fails there."
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


def _answer(facts: ModelInfo, estimates: list[Estimate]) -> str:
    further = [one for one in estimates if one.name.startswith("increase, context")]
    shifted = [one for one in estimates if one.name.startswith("increase, positions shifted")]
    sentences = []
    if further:
        one = further[-1]
        worse = one.low is not None and one.low > 0
        how = "It fails" if worse and one.value > 0.5 else "It degrades" if worse else "It does not degrade"
        sentences.append(
            f"{how} at longer contexts: {describe_effects({'a ' + one.name.removeprefix('increase, '): one})}."
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
    if facts.max_length:
        sentences.append(f"Its maximum length is {facts.max_length:,} tokens.")
    return " ".join(sentences)


def _caveats(fitting: list[int], reasons: dict[str, str]) -> list[str]:
    found = [f"Not measured, {what}: {reason}." for what, reason in reasons.items()]
    found += ["The length of the training texts is not recorded in a model; its maximum length is only a hint."]
    if fitting:
        found.append(
            "Concatenated texts are unrelated: an increase may be due to distracting content as well as to length."
        )
    return found
