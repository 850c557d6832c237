import json
import re

from ordinate.core.finding import Chart, Finding, Heatmap, HeatmapGrid, Line
from ordinate.report.finding_page import chart_svg, finding_page

HOSTILE = "</script><b>x</b>\u202e"
CHART = Chart(title=HOSTILE, x=HOSTILE, y="y", lines=(Line(name=HOSTILE, x=(1.0, 2.0), y=(1.0, 2.0)),))


def test_every_text_is_escaped_and_nothing_is_asked_for():
    picture = HeatmapGrid(title=HOSTILE, x="key", y=HOSTILE, panels=(Heatmap(name=HOSTILE, values=((0.0, 1.0),)),))
    finding = Finding(question="look", title=HOSTILE, answer=HOSTILE, charts=(CHART,), pictures=(picture,))
    labels = {"key": [HOSTILE, "a"]}
    page = finding_page(finding, HOSTILE, tokens=[HOSTILE], labels=labels, command=HOSTILE)
    assert "<b>x" not in page
    assert "\u202e" not in page
    assert page.count("</script>") == 2
    assert "script-src 'sha256-" in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert "http:" not in page.replace("http://www.w3.org/", "")
    held = json.loads(re.search(r'id="labels">(.*?)</script>', page, re.DOTALL)[1])
    assert held == {"key": ["</script><b>x</b>\ufffd", "a"]}


def test_a_page_without_pictures_or_tokens_has_neither():
    page = finding_page(Finding(question="q", title="t", answer="Yes: a."), "about")
    assert 'aria-label="tokens"' not in page
    assert "opens on a click" not in page
    assert "How to reproduce" not in page


def test_a_chart_is_drawn_without_scripts_in_the_colour_of_its_surroundings():
    drawn = chart_svg(CHART)
    assert drawn.startswith("<svg")
    assert "<b>" not in drawn
    assert "<script" not in drawn
    assert "currentColor" in drawn
