"""HTML page about a translation model: its scores, and the cross-attention of one translation."""

from collections.abc import Mapping
from typing import Any

from ordinate.report.charts import cross_attention_map
from ordinate.report.html import chart_context, template_environment

COLUMN = "crossing"


def translation_page(result: Mapping[str, Any]) -> str:
    """Return a self-contained HTML page; every text from the data is escaped.

    Args:
        result: `title`, `about`, `scores` (name, chrf and bleu of each), `measured`, `crossing` (source, target and
            weights), `samples` (source, target and `said`, the model's translation), `command`.
    """
    look = result["crossing"]
    chart = cross_attention_map(look["source"], look["target"], look["weights"]).configure_view(stroke=None)
    return (
        template_environment()
        .get_template("translation.html.jinja")
        .render(
            **{name: result[name] for name in ("title", "about", "scores", "measured", "samples", "command")},
            **chart_context({COLUMN: chart.to_dict()}),
        )
    )
