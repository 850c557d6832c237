"""A finding as a notebook shows it: still pictures, no scripts."""

import vl_convert

from ordinate.finding import Finding
from ordinate.report.card import card as card_of
from ordinate.report.findings import style
from ordinate.report.offline import environment

WIDTH = 680


def card(finding: Finding) -> str:
    """The card of a finding as HTML that runs nothing and fetches nothing."""
    shown = card_of(finding)
    for chart in shown["charts"]:
        spec = {**chart["spec"], "width": WIDTH}
        chart["drawn"] = vl_convert.vegalite_to_svg(spec).replace('color="currentColor"', "")
    return environment().get_template("notebook.html.jinja").render(card=shown, style=style())
