"""HTML page of one finding: its card, charts as static SVG, pictures whose rows and columns may have names."""

from collections.abc import Mapping, Sequence

import vl_convert

from ordinate.core.finding import Chart, Finding
from ordinate.report.charts import finding_chart
from ordinate.report.finding_card import card_context
from ordinate.report.findings import card_style
from ordinate.report.html import content_policy, package_text, printable, script_safe_json, template_environment

# pixels of a chart, and of one on a telephone: made smaller, the text of the first could not be read there
WIDTH, NARROW = 720, 340


def finding_page(
    finding: Finding,
    subtitle: str,
    *,
    tokens: Sequence[str] = (),
    labels: Mapping[str, Sequence[str]] | None = None,
    command: str = "",
) -> str:
    """Return a self-contained HTML page; every text from the data is escaped.

    Args:
        finding: the finding.
        subtitle: what was measured on what.
        tokens: tokens of a sentence, shown above the answer.
        labels: name of each row or column of a picture, by the name of its axis.
        command: the command that made it; empty: none.
    """
    enlarge, card = package_text("enlarge.js"), card_context(finding)
    for shown, chart in zip(card["charts"], finding.charts, strict=True):
        drawn = (("full", chart_svg(chart)), ("narrow", chart_svg(chart, width=NARROW)))
        shown["drawn"] = "".join(f'<div class="{name}">{svg}</div>' for name, svg in drawn)
    named = {axis: [printable(one) for one in own] for axis, own in (labels or {}).items()}
    return (
        template_environment()
        .get_template("finding.html.jinja")
        .render(
            title=finding.title,
            subtitle=subtitle,
            card=card,
            tokens=tokens,
            labels=script_safe_json(named),
            command=command,
            style=card_style(),
            frame=package_text("findings.css"),
            enlarge=enlarge,
            policy=content_policy(enlarge),
        )
    )


def chart_svg(chart: Chart, *, width: int = WIDTH) -> str:
    """Return a chart as SVG; its text has the colour of the text around it.

    Args:
        chart: the chart.
        width: its width [pixels].
    """
    drawn = vl_convert.vegalite_to_svg({**finding_chart(chart), "width": width})
    return drawn.replace('color="currentColor"', "")
