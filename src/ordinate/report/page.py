"""One offline page from the results of a study."""

from collections.abc import Sequence
from typing import Any

from ordinate.report.charts import Charts
from ordinate.report.facts import facts, method, subtitle
from ordinate.report.multiples import multiples
from ordinate.report.offline import bundle, environment, hashes, inert
from ordinate.report.quantity import Quantity
from ordinate.report.read import Study
from ordinate.report.summary import Entry
from ordinate.report.table import Row
from ordinate.report.trials import rate_table, steps_table
from ordinate.report.verdict import verdict

# runs in the page: reads the specifications as data and draws each into its place
DRAW = """
for (const chart of JSON.parse(document.getElementById("specs").textContent)) {
  window.vegaEmbed("#" + chart.id, chart.spec, {actions: false, renderer: "svg", ast: true});
}
"""

CHARTS = {
    "training": (
        "Learning",
        "Loss on the training {source}, step by step, each point the mean of several steps. Lower is better. "
        "Click a name to see one {noun} alone.{drawn}",
    ),
    "lengths": (
        "{beyond}",
        "{curve}{drawn}",
    ),
    "positions": (
        "Loss by position",
        "Mean loss at each place of the longest windows. The dashed line marks the trained length.{drawn}",
    ),
    "order": (
        "Does order matter to it?",
        "Loss when the tokens of a text are shuffled inside windows of 2, 4, 8 and more. A model that took no notice "
        "of order would draw a flat line.{drawn}",
    ),
    "crossing": (
        "What it looks at",
        "Cross-attention of the best {noun}, {first}, on a held-out pair: how much each token of the translation, "
        "from top to bottom, takes from each token of the source. The mean over layers and heads.",
    ),
    "cost": (
        "What it costs",
        "Training speed on this machine against {name} at the trained {extent}: {where} and to the right is "
        "good.{drawn}",
    ),
}
QUESTIONS = {"scheme": "Which positional scheme?", "mixer": "Which mixer?", "pair": "Which mixer, which scheme?"}


def page(study: Study, entries: Sequence[Entry], table: Sequence[Row]) -> str:
    """The page as HTML: everything in one file, nothing fetched, every text from the data escaped."""
    kind, noun, charts = study.quantity, study.noun, _charts(study, entries)
    also = _also(kind, table)
    library, seeds = bundle(), study.plan["seeds"]
    template = environment().get_template("page.html.jinja")
    return template.render(
        title=f"{QUESTIONS[noun]} {len(study.compared)} compared on {study.source}",
        subtitle=subtitle(study),
        verdict=verdict(study, entries),
        multiples=_multiples(entries),
        table=[_row(row, entries, study, also) for row in table],
        kind=kind,
        also=[head for _, head, _ in also],
        noun=noun,
        slices=multiples(study, entries),
        finished=f"{seeds} done",
        resampled=f"{kind.units} and seeds" if seeds > 1 else kind.units,
        seeds=seeds,
        charts=charts,
        samples=_samples(study),
        method=method(study),
        rates=[("", rates)] if (rates := rate_table(study)) else [],
        steps=[("", steps)] if (steps := steps_table(study)) else [],
        facts=facts(study),
        command=study.about["command"],
        specs=inert([{"id": chart["id"], "spec": chart["spec"]} for chart in charts]),
        bundle=library,
        draw=DRAW,
        script_hashes=hashes(library, DRAW),
    )


def _charts(study: Study, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    kind = study.quantity
    words = {"source": kind.source, "noun": study.noun, "name": kind.name, "extent": kind.extent, "curve": kind.curve}
    words["beyond"] = kind.beyond_title
    words["first"] = entries[0].label if entries else ""
    charts = Charts(study, entries)
    words["drawn"] = charts.left_out
    words["where"] = "low" if kind.sign > 0 else "high"
    return [
        {
            "id": f"chart-{name}",
            "title": CHARTS[name][0].format(**words),
            "caption": CHARTS[name][1].format(**words),
            "spec": getattr(charts, name)(),
        }
        for name in kind.charts
        if entries
    ]


def _multiples(entries: Sequence[Entry]) -> list[int]:
    return sorted({times for entry in entries for times in entry.levels})[1:]


def _row(row: Row, entries: Sequence[Entry], study: Study, also: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    kind, numbers = study.quantity, row.numbers
    lengths = [min(entry.levels) for entry in entries][:1] + _multiples(entries)
    names = [f"{kind.column}_{times}x" for times in lengths]
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
        "status": row.status,
        "cells": [
            *(cells if entries else [{"value": "", "best": False, "sure": ""}] * 2),
            *({"value": value, "best": False, "sure": ""} for value in plain),
        ],
    }


def _cell(row: Row, name: str, entries: Sequence[Entry], kind: Quantity, *, sure: bool = False) -> dict[str, Any]:
    value, low, high = (row.numbers.get(name + end) for end in ("", "_low", "_high"))
    values = [
        kind.sign * level.value
        for entry in entries
        for level in entry.levels.values()
        if name == f"{kind.column}_{level.times}x"
    ]
    return {
        "value": "" if value is None else kind.text(value),
        "best": value is not None and bool(values) and kind.sign * value == min(values),
        "sure": _beside(row, name, kind, (low, high)) if sure and low is not None and high is not None else "",
    }


def _beside(row: Row, name: str, kind: Quantity, bounds: tuple[float, float]) -> str:
    found = row.entry.behind if row.entry and name == "behind_best" else None
    return f"{kind.bounds(bounds)}{' sure' if found and found.sure else ''}"


def _also(kind: Quantity, table: Sequence[Row]) -> list[tuple[str, str, str]]:
    """What else some run has told."""
    return [one for one in kind.also if any(row.numbers.get(one[0]) is not None for row in table)]


def _formatted(number: float | None, form: str) -> str:
    return "" if number is None else f"{number:{form}}".replace("%", " %")


def _signed(number: float | None) -> str:
    # a zero has no sign of its own
    return "" if number is None else f"{round(number, 2) + 0.0:+.2f}"


def _whole(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _samples(study: Study) -> list[dict[str, Any]]:
    samples = []
    for label in study.compared:
        for result in study.done(label)[:1]:
            samples.append({"label": label, "texts": result.get("samples")})
    return [sample for sample in samples if sample["texts"]]
