"""HTML page of a study without a grid."""

from collections.abc import Sequence
from typing import Any

from ordinate.report.charts import StudyCharts
from ordinate.report.decision import decide
from ordinate.report.decision_card import DecisionCard
from ordinate.report.difference_plot import difference_plots
from ordinate.report.html import chart_context, package_text, template_environment
from ordinate.report.metric import Metric
from ordinate.report.read import Study
from ordinate.report.study_facts import method, study_facts, subtitle
from ordinate.report.summary import ArmSummary
from ordinate.report.svg_plots import slice_plots
from ordinate.report.table import TableRow
from ordinate.report.tuning_text import rate_table, steps_table
from ordinate.report.verdict import findings

CHART_TEXTS = {
    "training": (
        "Training loss",
        "Loss on the training {source} by step; each point is the mean over several steps. Lower is better. "
        "Click a name in the legend to highlight one {noun}.{drawn}",
    ),
    "lengths": (
        "{beyond}",
        "{curve}{drawn}",
    ),
    "positions": (
        "Loss by position",
        "Mean loss at each position of the longest windows. The dashed line marks the trained length.{drawn}",
    ),
    "order": (
        "Sensitivity to token order",
        "Loss when the tokens of a text are shuffled within windows of 2, 4, 8 and more tokens. A model that ignores "
        "order would have a flat line.{drawn}",
    ),
    "crossing": (
        "Cross-attention",
        "Cross-attention weights of the best {noun}, {first}, on a held-out pair, averaged over layers and heads: a "
        "row for each token of the translation (query), a column for each token of the source (key).",
    ),
    "cost": (
        "Quality and speed",
        "{name_first} at the trained {extent} against training speed on this machine; the best are at the {where} "
        "right.{drawn}",
    ),
}
TITLES = {"scheme": "Positional schemes", "mixer": "Mixers", "pair": "Mixers and positional schemes"}


def study_page(study: Study, entries: Sequence[ArmSummary], table: Sequence[TableRow]) -> str:
    """Return a self-contained HTML page; every text from the data is escaped."""
    kind, noun, charts = study.metric, study.noun, _charts(study, entries)
    also = _also(kind, table)
    seeds, sort = max(map(study.seeds_of, study.arms), default=0), package_text("table.js")
    template = template_environment().get_template("page.html.jinja")
    return template.render(
        title=f"{TITLES[noun]}: {len(study.arms)} compared on {study.data_title}",
        subtitle=subtitle(study),
        card=DecisionCard.of(study, decide(study, entries)),
        findings=findings(study, entries),
        differences=difference_plots(entries, kind),
        heads=_heads(study, entries, also),
        table=[_row(row, entries, study, also) for row in table],
        kind=kind,
        noun=noun,
        slices=slice_plots(study, entries),
        sampled=f"{kind.units} and seeds" if seeds > 1 else kind.units,
        seeds=seeds,
        charts=charts,
        samples=_samples(study),
        method=method(study),
        rates=[("", rates)] if (rates := rate_table(study)) else [],
        steps=[("", steps)] if (steps := steps_table(study)) else [],
        facts=study_facts(study),
        command=study.manifest["command"],
        sort=sort,
        **chart_context({chart["id"]: chart["spec"] for chart in charts}, sort),
    )


def _charts(study: Study, entries: Sequence[ArmSummary]) -> list[dict[str, Any]]:
    kind = study.metric
    words = {
        "source": kind.source,
        "noun": study.noun,
        "name": kind.name,
        "extent": kind.extent,
        "curve": kind.extrapolation_caption,
    }
    words["beyond"] = kind.extrapolation_title
    words["first"] = entries[0].label if entries else ""
    charts = StudyCharts(study, entries)
    words["drawn"] = charts.left_out
    words["name_first"] = kind.name.capitalize()
    words["where"] = "lower" if kind.sign > 0 else "upper"
    return [
        {
            "id": f"chart-{name}",
            "title": CHART_TEXTS[name][0].format(**words),
            "caption": CHART_TEXTS[name][1].format(**words),
            "spec": getattr(charts, name)(),
        }
        for name in kind.charts
        if entries
    ]


def _heads(study: Study, entries: Sequence[ArmSummary], also: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the headings of the table, which a narrow screen shows beside each value."""
    kind, noun = study.metric, study.noun
    return [
        *(["scheme"] if noun == "scheme" else ["mixer", "scheme"]),
        kind.name,
        "difference to best, paired",
        *(f"at {times}x" for times in _multiples(entries)),
        *(["pairs shuffled", "all shuffled"] if "order" in kind.sections else []),
        *(head for _, head, _ in also),
        f"{kind.speed} / s",
        "memory",
        "parameters",
    ]


def _multiples(entries: Sequence[ArmSummary]) -> list[int]:
    return sorted({times for entry in entries for times in entry.levels})[1:]


def _row(
    row: TableRow, entries: Sequence[ArmSummary], study: Study, also: Sequence[tuple[str, str, str]]
) -> dict[str, Any]:
    kind, numbers = study.metric, row.numbers
    lengths = [min(entry.levels) for entry in entries][:1] + _multiples(entries)
    names = [f"{kind.csv_prefix}_{times}x" for times in lengths]
    first, rest = names[:1], names[1:]
    cells = [_cell(row, name, entries, kind, sure=True) for name in first]
    cells.append(_cell(row, "behind_best", entries, kind, sure=True))
    cells += [_cell(row, name, entries, kind) for name in rest]
    memory = numbers.get("peak_memory_mb")
    plain = [_signed(numbers.get(name)) for name in ("shuffle_2", "shuffle_all") if "order" in kind.sections]
    plain += [_formatted(numbers.get(name), form) for name, _, form in also]
    plain += [_whole(numbers.get("tokens_per_second")), f"{memory:,.0f} MB" if memory else ""]
    plain.append(_whole(numbers.get("parameters_trained")))
    return {
        "names": [row.label] if study.noun == "scheme" else [row.mixer, row.scheme],
        "status": "" if row.status == f"{study.seeds_of(row.label)} done" else row.status,
        "cells": [
            *(cells if entries else [{"value": "", "best": False, "sure": ""}] * 2),
            *({"value": value, "best": False, "sure": ""} for value in plain),
        ],
    }


def _cell(
    row: TableRow, name: str, entries: Sequence[ArmSummary], kind: Metric, *, sure: bool = False
) -> dict[str, Any]:
    value, low, high = (row.numbers.get(name + end) for end in ("", "_low", "_high"))
    values = [
        kind.sign * level.value
        for entry in entries
        for level in entry.levels.values()
        if name == f"{kind.csv_prefix}_{level.times}x"
    ]
    return {
        "value": "" if value is None else kind.format_value(value),
        "best": value is not None and bool(values) and kind.sign * value == min(values),
        "sure": _beside(row, name, kind, (low, high)) if sure and low is not None and high is not None else "",
    }


def _beside(row: TableRow, name: str, kind: Metric, bounds: tuple[float, float]) -> str:
    found = row.entry.behind if row.entry and name == "behind_best" else None
    return f"{kind.format_interval(bounds)}{' significant' if found and found.significant else ''}"


def _also(kind: Metric, table: Sequence[TableRow]) -> list[tuple[str, str, str]]:
    """The further columns for which at least one run has a value."""
    return [one for one in kind.extra_columns if any(row.numbers.get(one[0]) is not None for row in table)]


def _formatted(number: float | None, form: str) -> str:
    return "" if number is None else f"{number:{form}}".replace("%", " %")


def _signed(number: float | None) -> str:
    # adding 0.0 turns -0.0 into 0.0
    return "" if number is None else f"{round(number, 2) + 0.0:+.2f}"


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _samples(study: Study) -> list[dict[str, Any]]:
    samples = []
    for label in study.arms:
        for result in study.finished(label)[:1]:
            samples.append({"label": label, "texts": result.get("samples")})
    return [sample for sample in samples if sample["texts"]]
