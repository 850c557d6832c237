"""Coordinates of the forest plots of paired differences to the best, which the page of a study draws."""

from collections.abc import Sequence
from typing import Any

from ordinate.report.decision import best_at_longest, entries_at_longest
from ordinate.report.metric import Metric
from ordinate.report.read import MAX_ARMS_DRAWN
from ordinate.report.summary import ArmSummary

# in SVG user units: width of a plot, height of a row, margin on both sides
WIDTH, ROW, MARGIN = 300.0, 24.0, 8.0


def difference_plots(entries: Sequence[ArmSummary], kind: Metric) -> list[dict[str, Any]]:
    """Return a plot at the trained length, and one at the longest; none where there is nothing to compare."""
    if not entries:
        return []
    near = _plot(entries, "behind", f"At the trained {kind.extent}", kind)
    if all(len(entry.levels) == 1 for entry in entries):
        return near
    furthest, able = best_at_longest(entries, kind), entries_at_longest(entries)
    ranked = sorted(able, key=lambda entry: (entry is not furthest, kind.sign * entry.longest.value))
    return near + _plot(ranked, "behind_longest", f"At {furthest.longest.times} times that {kind.extent}", kind)


def _plot(ranked: Sequence[ArmSummary], level: str, title: str, kind: Metric) -> list[dict[str, Any]]:
    compared = [(entry.label, getattr(entry, level)) for entry in ranked if getattr(entry, level)][:MAX_ARMS_DRAWN]
    if not compared:
        return []
    ends = [end for _, found in compared for end in (found.interval or (found.difference, found.difference))]
    low, high = min(0.0, *ends), max(0.0, *ends)

    def x(number: float) -> str:
        share = (number - low) / (high - low) if high > low else 0.5
        return f"{MARGIN + (WIDTH - 2 * MARGIN) * share:.1f}"

    rows = []
    for index, (label, found) in enumerate(compared):
        left, right = found.interval or (found.difference, found.difference)
        rows.append(
            {
                "label": label,
                "y": f"{ROW * (index + 0.5):.1f}",
                "mark": (x(left), x(found.difference), x(right)),
                "significant": found.significant,
                "said": ("+" if found.difference >= 0 else "")
                + kind.format_difference(found.difference, found.interval)
                + ("" if found.significant else ", n.s."),
            }
        )
    return [{"title": title, "best": ranked[0].label, "rows": rows, "zero": x(0.0), "height": ROW * len(rows)}]
