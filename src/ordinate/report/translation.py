"""One offline page about a translator: its scores, and what one translation looked at."""

from collections.abc import Mapping
from typing import Any

from ordinate.report.crossing import crossing
from ordinate.report.offline import bundle, environment, hashes, inert
from ordinate.report.page import DRAW

COLUMN = "crossing"


def translation_page(result: Mapping[str, Any]) -> str:
    """The page as HTML: everything in one file, nothing fetched, every text from the data escaped.

    Args:
        result: `title`, `about`, `scores` (name, chrf and bleu of each), `measured`, `crossing` (source, target and
            weights), `samples` (source, target and what was said), `command`.
    """
    look = result["crossing"]
    chart = crossing(look["source"], look["target"], look["weights"]).configure_view(stroke=None)
    library = bundle()
    return (
        environment()
        .get_template("translation.html.jinja")
        .render(
            **{name: result[name] for name in ("title", "about", "scores", "measured", "samples", "command")},
            specs=inert([{"id": COLUMN, "spec": chart.to_dict()}]),
            bundle=library,
            draw=DRAW,
            script_hashes=hashes(library, DRAW),
        )
    )
