"""Order sensitivity: permutation equivariance, effect of shuffling, and the sources of order information."""

import time
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Chart, Estimate, Finding, Grade, Table
from ordinate.core.progress import OnProgress, fraction, ignore
from ordinate.ops.stats.bootstrap import (
    FEWEST,
    LEVEL,
    mean_intervals,
    percentiles,
    resampled_means,
    small_sample_level,
)
from ordinate.ops.stats.multiple_testing import benjamini_hochberg
from ordinate.ops.stats.permutation_tests import sign_flip_test
from ordinate.probing._adapter import ModelAdapter, ModelInfo, NotApplicable
from ordinate.probing._probe import Probe, ProbeData
from ordinate.probing.measures.formatting import (
    RELATIVE_UNIT,
    describe_effects,
    format_percent,
    mean_estimate,
    mean_line,
    sample_caveats,
)
from ordinate.probing.measures.measured import Measured, missing_parts
from ordinate.probing.measures.permutation_equivariance import (
    ARMS,
    SHORT_LENGTH,
    SHORT_TEXTS,
    Equivariance,
    equivariance_errors,
    prefix_permutation_changes,
)
from ordinate.probing.measures.perturbation_loss import Metric, OutputChange, PerText, metric_for
from ordinate.probing.measures.samples import ForwardBudget, Sample, intervention_sample, random_permutation

METHOD = (
    "Equivariance: on {short} short {noun}, tokens, position ids and the attention mask are permuted, the output is "
    "permuted back, and each token compared with itself in the unchanged text; the median over tokens of the change "
    "relative to its norm, beside the change by rounding the residual stream once more in each layer. Grade: by the "
    "increase under complete shuffling, of random tokens by the change when tokens are permuted; yes from {size} "
    "on, weakly below; no if permuting tokens alone changes no more than permuting every source of order. Depth: "
    "the tokens before the last one are permuted, and its vector is compared after each layer. Shuffling: tokens "
    "are shuffled within windows, and the {what} is compared with that of the same {noun} in order ({texts} of "
    "{length} tokens). Sources of order: the causal mask and the position encoding are removed, each and both, and "
    "their joint effect is attributed by Shapley values. Intervals: 95 %, bootstrap over {noun}; p-values: "
    "sign-flip permutation test, adjusted by Benjamini and Hochberg."
)
NULL = (
    "A model that ignores order: equivariance errors at the level of rounding (of this model in its data type, "
    "measured), and no increase at any window. Tokens that are already shuffled are shuffled again: the grey line."
)
# smallest increase of the loss [nats per token], or change of the output [of its norm], that matters
SIZE = 0.1
DEPTH_CAPTION = (
    "Change of the last token's vector when the preceding tokens are permuted. If their position ids are permuted "
    "too, only the causal mask carries order: no change after one layer, a change after two, since the preceding "
    "tokens attended to other tokens."
)


class OrderSensitivity(Probe):
    """Measure how much a model uses token order, and whether it gets it from the mask or the position encoding.

    Args:
        windows: window sizes for shuffling [tokens]; None: 2, 4, 8 ... up to the whole text.
    """

    title = "Does order matter to it, and how does it know?"

    def __init__(self, *, windows: tuple[int, ...] | None = None) -> None:
        self.windows = windows

    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        began = time.perf_counter()
        chosen = intervention_sample(model.info, data, ForwardBudget(14 if model.info.causal else 12))
        short = chosen.truncated(SHORT_TEXTS, SHORT_LENGTH)
        equivariance = equivariance_errors(model, short, seed)
        on_progress(fraction(0.1))
        depths = _depth_effects(model, short, seed)
        on_progress(fraction(0.2))
        scale = metric_for(model, chosen, seed)
        plain = scale.per_text()
        rises, again = self._shuffling_effects(scale, plain, seed, on_progress)
        shares = _source_effects(scale, plain, seed)
        on_progress(fraction(1.0))
        changed = _equivariance_estimates(equivariance, seed)
        shuffled = _shuffling_estimates(scale, rises, again, equivariance, seed)
        estimates = [*shuffled, *changed.values(), *_depth_estimates(depths.value, seed), *shares.value]
        grade, effect = _grade(equivariance, changed, shuffled[-1], natural=data.natural)
        sizes = {"texts": chosen.count, "length": chosen.length, "short": short.count, "noun": chosen.noun}
        return Finding(
            question="order_sensitivity",
            title=self.title,
            grade=grade,
            effect=effect,
            answer=_answer(model.info, equivariance, {one.name: one for one in estimates}),
            estimates=tuple(estimates),
            tables=(_table(scale, rises, seed),),
            charts=(_shuffling_chart(scale, rises, again, seed), *_by_depth(depths.value, seed)),
            method=METHOD.format(what=scale.name, size=SIZE, **sizes),
            null=NULL,
            caveats=(
                *sample_caveats([chosen], {**equivariance.missing, **missing_parts(depths, shares)}),
                *_caveats(scale),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _shuffling_effects(
        self, scale: Metric, plain: PerText, seed: int, on_progress: OnProgress
    ) -> tuple[dict[int, PerText], PerText | None]:
        """Increase of the metric per text by window size, and the null: shuffling texts that are already shuffled.

        The null is None for a relative output change, which is a distance and not a difference of two values.
        """
        generator, length = torch.Generator().manual_seed(seed), scale.sample.length
        own = self.windows or tuple(2**power for power in range(1, 20) if 2**power < length)
        windows = sorted({min(window, length) for window in (*own, length)})
        found, whole = {}, plain
        for place, window in enumerate(windows):
            whole = scale.per_text(random_permutation(scale.sample, window, generator))
            found[window] = whole - plain
            on_progress(fraction(0.2 + 0.6 * (place + 1) / len(windows)))
        if isinstance(scale, OutputChange):
            return found, None
        return found, scale.per_text(random_permutation(scale.sample, length, generator)) - whole


def _depth_effects(
    subject: ModelAdapter, short: Sample, seed: int
) -> Measured[dict[str, Float[ndarray, "texts layers"]]]:
    found, missing = {}, {}
    for name, positions in (
        ("preceding tokens permuted", False),
        ("preceding tokens and positions permuted", True),
    ):
        try:
            found[name] = prefix_permutation_changes(subject, short, seed, positions=positions)
        except NotApplicable as reason:
            missing[f"{name}, by depth"] = str(reason)
    return Measured(found, missing)


def _source_effects(scale: Metric, plain: PerText, seed: int) -> Measured[list[Estimate]]:
    """Effects of removing the mask and the position encoding, and the Shapley share of the latter."""
    length = scale.sample.length
    nowhere = torch.zeros(scale.sample.count, length, dtype=torch.long)
    everything = torch.ones(1, length, length, dtype=torch.bool)
    try:
        code = scale.per_text(nowhere, tokens=False, positions=True) - plain
    except NotApplicable as reason:
        return Measured([], {"without position encoding": str(reason)})
    found = [_rise("without position encoding", code, scale, seed)]
    if not scale.subject.info.causal:
        return Measured(found)
    try:
        mask = scale.per_text(mask=everything) - plain
        both = scale.per_text(nowhere, tokens=False, positions=True, mask=everything) - plain
    except NotApplicable as reason:
        return Measured(found, {"without causal mask": str(reason)})
    found += [_rise("without causal mask", mask, scale, seed), _rise("without both", both, scale, seed)]
    by_code = (code + both - mask) / 2
    drawn, level = resampled_means(np.stack([by_code, both], 1), seed), small_sample_level(LEVEL, len(both))
    # the ratio is undefined if the joint effect may be 0, and resampled ratios of few texts have no tails
    if len(both) >= FEWEST and (drawn[:, 1] > 0).all():
        low, high = (float(end) for end in percentiles(drawn[:, 0] / drawn[:, 1], level))
        share = float(by_code.mean() / both.mean())
        found.append(
            Estimate(
                name="Shapley share of the position encoding", value=share, low=low, high=high, null=0.0, unit="share"
            )
        )
    return Measured(found)


def _rise(name: str, values: PerText, scale: Metric, seed: int) -> Estimate:
    return mean_estimate(f"increase, {name}", values, seed, scale.unit)


def _equivariance_estimates(found: Equivariance, seed: int) -> dict[str, Estimate]:
    """Change of each arm, with that by rounding as its null."""
    null = None if found.noise is None else float(found.noise.mean())
    return {
        name: mean_estimate(f"change, {name} permuted", values, seed, RELATIVE_UNIT, null)
        for name, values in found.errors.items()
    }


def _grade(
    found: Equivariance, changed: Mapping[str, Estimate], shuffled: Estimate, *, natural: bool
) -> tuple[Grade, Estimate]:
    alone = changed.get(ARMS[0].name)
    if found.ignores_order and alone is not None:
        return "no", alone
    if natural or alone is None:
        return shuffled.graded(SIZE), shuffled
    # random tokens have no order that a loss could use
    return alone.graded(SIZE), alone


def _depth_estimates(depths: Mapping[str, ndarray], seed: int) -> list[Estimate]:
    return [
        mean_estimate(f"last token after layer {layer + 1}, {name}", values[:, layer], seed, RELATIVE_UNIT)
        for name, values in depths.items()
        for layer in range(min(2, values.shape[1]))
    ]


def _shuffling_estimates(
    scale: Metric, rises: Mapping[int, PerText], again: PerText | None, found: Equivariance, seed: int
) -> list[Estimate]:
    # the null of a change of the output, a distance, is that by rounding
    null_interval = {"null": None if found.noise is None else float(found.noise.mean())}
    if again is not None:
        low, high = (float(end) for end in percentiles(sign_flip_test(again, seed)[1]))
        null_interval = {"null": 0.0, "null_low": low, "null_high": high}
    shown = {"shuffled in pairs": min(rises), "shuffled completely": max(rises)}
    return [
        _rise(name, rises[window], scale, seed).model_copy(update=null_interval) for name, window in shown.items()
    ]


def _table(scale: Metric, rises: Mapping[int, PerText], seed: int) -> Table:
    values = np.stack(list(rises.values()), 1)
    p, (middle, low, high) = benjamini_hochberg(sign_flip_test(values, seed)[0]), mean_intervals(values, seed)
    columns = [[float(x) for x in column] for column in (middle, low, high, p)]
    return Table(
        title=f"Effect of shuffling: {scale.name} [{scale.unit}]",
        columns=("window size", "increase", "95 % from", "to", "adjusted p"),
        rows=tuple(zip(rises, *columns, strict=True)),
    )


def _shuffling_chart(scale: Metric, rises: Mapping[int, PerText], again: PerText | None, seed: int) -> Chart:
    windows, values = list(rises), np.stack(list(rises.values()), 1)
    lines = [mean_line("shuffled", windows, values, seed)]
    if again is not None:
        ends = [windows[0], windows[-1]]
        lines.append(mean_line("already shuffled", ends, np.stack([again, again], 1), seed, null=True))
    return Chart(
        title="Effect of shuffling",
        x="window size [tokens]",
        y=f"increase [{scale.unit}]",
        lines=tuple(lines),
        caption=f"{scale.name.capitalize()} of shuffled {scale.sample.noun} minus that of the same in order.",
        across="log",
    )


def _by_depth(depths: Mapping[str, ndarray], seed: int) -> list[Chart]:
    lines = [mean_line(name, range(1, values.shape[1] + 1), values, seed) for name, values in depths.items()]
    title, y = "Last token when the preceding tokens are permuted", f"change [{RELATIVE_UNIT}]"
    return [Chart(title=title, x="after layer", y=y, lines=tuple(lines), caption=DEPTH_CAPTION)] if lines else []


def _answer(facts: ModelInfo, equivariance: Equivariance, found: Mapping[str, Estimate]) -> str:
    sentences = []
    exact = f"change, {equivariance.exact} permuted"
    if equivariance.ignores_order:
        sentences.append(
            "It ignores order: permuting the tokens only permutes the output (permutation equivariance)."
        )
    elif exact in found:
        sources = "positions and mask" if facts.causal else "positions"
        only = equivariance.is_rounding(equivariance.exact)
        end = f"{sources} are its only sources of order" if only else "it has other sources of order"
        sentences.append(
            f"Permuting tokens together with their {sources} changes the output by {found[exact].value:.1g} of its "
            f"norm: {end}."
        )
    whole, noun = found["increase, shuffled completely"], "images" if facts.kind == "vision" else "texts"
    if whole.low is None or whole.low > (whole.null_high or 0.0):
        sentences.append(f"{describe_effects({f'Shuffling whole {noun}': whole})}.")
    else:
        effect = describe_effects({f"shuffling whole {noun}": whole})
        sentences.append(f"It makes no measurable use of order in this sample: {effect}.")
    if share := found.get("Shapley share of the position encoding"):
        sentences.append(
            f"{format_percent(share.value)} of the joint effect of causal mask and position encoding is due to the "
            "encoding."
        )
    return " ".join(sentences)


def _caveats(scale: Metric) -> list[str]:
    found = []
    if isinstance(scale, OutputChange):
        found.append("The model has no prediction loss: the change of its output is measured instead.")
    if scale.subject.info.causal:
        found.append("Without its causal mask a model sees the tokens to predict, which it was not trained for.")
    return found
