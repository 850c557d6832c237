"""HTML page of a look at one sentence: pictures of heads whose rows and columns are tokens."""

from collections.abc import Mapping, Sequence

from ordinate.core.finding import Finding
from ordinate.report.finding_card import card_context
from ordinate.report.findings import card_style
from ordinate.report.html import content_policy, package_text, printable, script_safe_json, template_environment


def look_page(finding: Finding, name: str, labels: Mapping[str, Sequence[str]], command: str) -> str:
    """Return a self-contained HTML page; every text from the data is escaped.

    Args:
        finding: the answer with its pictures.
        name: name of the model.
        labels: name of each row or column of a picture, by the name of its axis.
        command: the command that made it; empty: none.
    """
    enlarge = package_text("enlarge.js")
    tokens = labels["token"]
    return (
        template_environment()
        .get_template("look.html.jinja")
        .render(
            title=finding.title,
            subtitle=f"{name}, on a sentence of {len(tokens)} tokens.",
            card=card_context(finding),
            tokens=tokens,
            labels=script_safe_json({axis: [printable(one) for one in own] for axis, own in labels.items()}),
            command=command,
            style=card_style(),
            frame=package_text("findings.css"),
            enlarge=enlarge,
            policy=content_policy(enlarge),
        )
    )
