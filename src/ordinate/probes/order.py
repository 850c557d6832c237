"""What order means to a model, and by which way it comes to know of it."""

import time
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.finding import Chart, Estimate, Finding, Table
from ordinate.measures.equivariance import ARMS, PAIRS, TOKENS, arms, prefix_swaps, rounding
from ordinate.measures.harm import Gauge, Numbers, Turned, gauge
from ordinate.measures.presenting import Passes, Sample, changed, shuffled
from ordinate.measures.telling import OF_LENGTH, costs, estimate_of, line_of, percent
from ordinate.ops.bootstrap import mean_intervals, percentiles, resampled_means
from ordinate.ops.discovery import adjusted
from ordinate.ops.permutation import sign_flips
from ordinate.probe import Material, Probe, Tell
from ordinate.subject import Facts, Subject, Unfit

METHOD = (
    "Identities: on {short} short {noun}, tokens, their positions and what each may see are permuted, the output "
    "is put back in order and compared with that of the text as it is. Depth: the tokens before the last change "
    "places, and the last one's vector is compared after each layer. Use: tokens are shuffled inside windows, and "
    "the {what} is compared with that of the same {noun} in order ({texts} of {length} tokens). Ways: the mask and "
    "the position code are taken away, each and both, and what order is worth is shared between them by Shapley's "
    "rule. Intervals: 95 %, bootstrap over {noun}; p-values: signs of the differences drawn at random, adjusted by "
    "Benjamini and Hochberg."
)
NULL = (
    "A model that takes no notice of order: errors of rounding size, and no rise at any window. Tokens that have "
    "been shuffled already are shuffled again: the grey line."
)
BY_DEPTH = (
    "The last token's vector when those before it change places. Where their positions go with them only the mask "
    "can tell: nothing after one layer, something after two, since the tokens before it saw others."
)


class Order(Probe):
    """How much a model makes of the order of its tokens, and by which way it knows of it.

    Args:
        windows: tokens that are shuffled among themselves; None: 2, 4, 8 and so on to the whole text.
    """

    title = "Does order matter to it, and how does it know?"

    def __init__(self, *, windows: tuple[int, ...] | None = None) -> None:
        self.windows = windows

    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model."""
        began = time.perf_counter()
        chosen = changed(subject.facts, material, Passes(14 if subject.facts.causal else 12))
        short = chosen.first(PAIRS, TOKENS)
        errors, reasons = arms(subject, short, seed)
        tell(0.1)
        depths = _depths(subject, short, seed, reasons)
        tell(0.2)
        scale = gauge(subject, chosen, seed)
        plain = scale.measure()
        rises, again = self._rises(scale, plain, seed, tell)
        shares = _shares(scale, plain, seed, reasons)
        tell(1.0)
        estimates = [
            *_of_arms(errors, seed),
            *_of_depths(depths, seed),
            *_of_rises(scale, rises, again, seed),
            *shares,
        ]
        sizes = {"texts": chosen.texts, "length": chosen.length, "short": short.texts, "noun": chosen.noun}
        return Finding(
            question="order",
            title=self.title,
            answer=_answer(subject.facts, estimates),
            estimates=tuple(estimates),
            tables=(_table(scale, rises, seed),),
            charts=(_ladder(scale, rises, again, seed), *_by_depth(depths, seed)),
            method=METHOD.format(what=scale.name, **sizes),
            null=NULL,
            caveats=(
                *chosen.left_out,
                *(f"Not measured, {arm}: {reason}." for arm, reason in reasons.items()),
                *_caveats(scale),
            ),
            seed=seed,
            seconds=time.perf_counter() - began,
        )

    def _rises(
        self, scale: Gauge, plain: Numbers, seed: int, tell: Tell
    ) -> tuple[dict[int, Numbers], Numbers | None]:
        """What shuffling costs each text, by window; and what shuffling again costs, where that is a difference."""
        generator, length = torch.Generator().manual_seed(seed), scale.sample.length
        own = self.windows or tuple(2**power for power in range(1, 20) if 2**power < length)
        windows = sorted({min(window, length) for window in (*own, length)})
        found, whole = {}, plain
        for place, window in enumerate(windows):
            whole = scale.measure(shuffled(scale.sample, window, generator))
            found[window] = whole - plain
            tell(0.2 + 0.6 * (place + 1) / len(windows))
        if isinstance(scale, Turned):
            return found, None
        return found, scale.measure(shuffled(scale.sample, length, generator)) - whole


def _depths(
    subject: Subject, short: Sample, seed: int, reasons: dict[str, str]
) -> dict[str, Float[ndarray, "texts layers"]]:
    found = {}
    for name, positions in (("tokens change places", False), ("tokens and their positions change places", True)):
        try:
            found[name] = prefix_swaps(subject, short, seed, positions=positions)
        except Unfit as reason:
            reasons[f"{name}, by depth"] = str(reason)
    return found


def _shares(scale: Gauge, plain: Numbers, seed: int, reasons: dict[str, str]) -> list[Estimate]:
    """What it costs to take away the mask and the position code, and how what both are worth is shared."""
    length = scale.sample.length
    nowhere = torch.zeros(scale.sample.texts, length, dtype=torch.long)
    everything = torch.ones(1, length, length, dtype=torch.bool)
    try:
        code = scale.measure(nowhere, tokens=False, positions=True) - plain
    except Unfit as reason:
        reasons["without position code"] = str(reason)
        return []
    found = [_rise("without position code", code, scale, seed)]
    if not scale.subject.facts.causal:
        return found
    try:
        mask = scale.measure(visible=everything) - plain
        both = scale.measure(nowhere, tokens=False, positions=True, visible=everything) - plain
    except Unfit as reason:
        reasons["without mask"] = str(reason)
        return found
    found += [_rise("without mask", mask, scale, seed), _rise("without both", both, scale, seed)]
    by_code = (code + both - mask) / 2
    drawn = resampled_means(np.stack([by_code, both], 1), seed)
    # a share of nothing is no number
    if (drawn[:, 1] > 0).all():
        low, high = (float(end) for end in percentiles(drawn[:, 0] / drawn[:, 1]))
        share = float(by_code.mean() / both.mean())
        found.append(
            Estimate(name="share of the position code", value=share, low=low, high=high, null=0.0, unit="share")
        )
    return found


def _rise(name: str, values: Numbers, scale: Gauge, seed: int) -> Estimate:
    return estimate_of(f"rise {name}", values, seed, scale.unit)


def _of_arms(errors: Mapping[str, Numbers], seed: int) -> list[Estimate]:
    return [estimate_of(f"change, {name} permuted", values, seed, OF_LENGTH) for name, values in errors.items()]


def _of_depths(depths: Mapping[str, ndarray], seed: int) -> list[Estimate]:
    return [
        estimate_of(f"last token after layer {layer + 1}, {name} before it", values[:, layer], seed, OF_LENGTH)
        for name, values in depths.items()
        for layer in range(min(2, values.shape[1]))
    ]


def _of_rises(scale: Gauge, rises: Mapping[int, Numbers], again: Numbers | None, seed: int) -> list[Estimate]:
    beside = {}
    if again is not None:
        low, high = (float(end) for end in percentiles(sign_flips(again, seed)[1]))
        beside = {"null_low": low, "null_high": high}
    shown = {"shuffled in pairs": min(rises), "shuffled whole": max(rises)}
    return [_rise(name, rises[window], scale, seed).model_copy(update=beside) for name, window in shown.items()]


def _table(scale: Gauge, rises: Mapping[int, Numbers], seed: int) -> Table:
    values = np.stack(list(rises.values()), 1)
    p, (middle, low, high) = adjusted(sign_flips(values, seed)[0]), mean_intervals(values, seed)
    columns = [[float(x) for x in column] for column in (middle, low, high, p)]
    return Table(
        title=f"What shuffling does: {scale.name} [{scale.unit}]",
        columns=("shuffled inside windows of", "rise", "95 % from", "to", "adjusted p"),
        rows=tuple(zip(rises, *columns, strict=True)),
    )


def _ladder(scale: Gauge, rises: Mapping[int, Numbers], again: Numbers | None, seed: int) -> Chart:
    windows, values = list(rises), np.stack(list(rises.values()), 1)
    lines = [line_of("shuffled", windows, values, seed)]
    if again is not None:
        ends = [windows[0], windows[-1]]
        lines.append(line_of("shuffled already", ends, np.stack([again, again], 1), seed, null=True))
    return Chart(
        title="What it costs to shuffle",
        x="tokens shuffled inside windows of",
        y=f"rise [{scale.unit}]",
        lines=tuple(lines),
        caption=f"{scale.name.capitalize()} of shuffled {scale.sample.noun} less that of the same in order.",
        across="log",
    )


def _by_depth(depths: Mapping[str, ndarray], seed: int) -> list[Chart]:
    lines = [line_of(name, range(1, values.shape[1] + 1), values, seed) for name, values in depths.items()]
    title, y = "The last token, when those before it change places", f"change [{OF_LENGTH}]"
    return [Chart(title=title, x="after layer", y=y, lines=tuple(lines), caption=BY_DEPTH)] if lines else []


def _answer(facts: Facts, estimates: list[Estimate]) -> str:
    found, told = {estimate.name: estimate for estimate in estimates}, []
    names = [f"change, {arm.name} permuted" for arm in ARMS]
    blind = rounding(facts.dtype)
    exact = names[3] if facts.causal else names[2]
    if names[0] in found and found[names[0]].value <= blind:
        told.append("It takes no notice of order: permuted tokens give the same, permuted.")
    elif exact in found:
        ways, tell = ("their positions and mask", "they") if facts.causal else ("their positions", "these")
        end = (
            f"{tell} alone tell it the order"
            if found[exact].value <= blind
            else f"more than {ways} tells it the order"
        )
        told.append(
            f"Permuted with {ways}, tokens give the same up to {found[exact].value:.1g} of the length: {end}."
        )
    whole, noun = found["rise shuffled whole"], "images" if facts.kind == "vision" else "texts"
    if whole.low is None or whole.low > (whole.null_high or 0.0):
        told.append(f"{costs({f'Shuffling whole {noun}': whole})}.")
    else:
        told.append(f"It makes no measurable use of order here: {costs({f'shuffling whole {noun}': whole})}.")
    if share := found.get("share of the position code"):
        told.append(f"Of what mask and position code are worth together, the code gives {percent(share.value)}.")
    return " ".join(told)


def _caveats(scale: Gauge) -> list[str]:
    found = []
    if isinstance(scale, Turned):
        found.append("It predicts nothing that could be scored: the change of its output stands in for a loss.")
    if scale.subject.facts.causal:
        found.append("Without its mask a model sees what it is to predict, which it was never trained for.")
    return found
