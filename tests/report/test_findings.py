import json
import re

import pytest

from ordinate.finding import Chart, Estimate, Finding, Line, Panel, Picture, Table
from ordinate.lab.folder import Folder
from ordinate.report.build import build_findings
from ordinate.report.card import number
from ordinate.report.heat import Scale, image, palette
from ordinate.report.lines import spec
from ordinate.report.notebook import card

FACTS = {"name": "tiny", "family": "gpt2", "kind": "decoder", "layers": 2, "heads": 2, "width": 8, "position": "rope"}
HOSTILE = '</script><img src=x onerror=alert(1)>"\u202e\0'


def finding(text="text", question="order"):
    chart = Chart(title=text, x=text, y=text, caption=text, lines=(
        Line(name=text, x=(1, 2), y=(0.5, None), low=(0.4, 0.1), high=(0.6, 0.3)),
        Line(name="chance", x=(1, 2), y=(0, 0), null=True),
    ))  # fmt: skip
    picture = Picture(title=text, x=text, y=text, panels=(Panel(name=text, values=((0, 1), (2, 3)), note=text),))
    table = Table(title=text, columns=(text, "b"), rows=((text, 1.5),), caption=text)
    estimate = Estimate(name=text, value=0.25, low=0.1, high=0.4, null=0.0, unit=text)
    return Finding(question=question, title=text, answer=text, estimates=(estimate,) * 8, tables=(table,),
                   charts=(chart,), pictures=(picture,), method=text, null=text, caveats=(text,))  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path)
    made.open({"model": "tiny"}, {"facts": FACTS, "read": "texts", "command": "ordinate probe tiny"})
    return made


def test_the_page_holds_every_part_and_asks_nobody(folder):
    folder.keep("order", {}, finding())
    folder.keep("roles", {}, Finding(question="roles", title="Q and K?", status="skipped", answer="no heads"))
    folder.keep_failure("offsets", "Two to the left?", "Traceback\nValueError: it broke")
    page = build_findings(folder.path).read_text(encoding="utf-8")
    for part in ("What does position do inside tiny?", "0.25", "<span>0.1</span> to <span>0.4</span>",
                 "no heads", "ValueError: it broke",
                 "2 more numbers", "ordinate probe tiny", "prefers-color-scheme: dark", "@media print"):  # fmt: skip
        assert part in page
    assert page.index('id="order"') < page.index('id="roles"') < page.index('id="offsets"')
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?://|url\(|@import|<link|<iframe", outside)
    assert "default-src 'none'" in page
    assert build_findings(folder.path).read_text(encoding="utf-8") == page


def test_text_from_data_never_becomes_an_element(folder):
    folder.keep("order", {}, finding())
    plain = build_findings(folder.path).read_text(encoding="utf-8")
    folder.keep("order", {}, finding(HOSTILE))
    page = build_findings(folder.path).read_text(encoding="utf-8")
    assert page.count("<img") == plain.count("<img")
    assert page.count("</script>") == plain.count("</script>")
    assert "\u202e" not in page
    shown = card(finding(HOSTILE))
    assert shown.count("<img") == card(finding()).count("<img")


def test_a_chart_leaves_out_what_is_not_there_and_greys_what_chance_gives():
    drawn = json.dumps(spec(finding().charts[0]))
    assert drawn.count('"x": 2') == 1
    assert "#8a93a1" in drawn


def test_whole_places_have_no_marks_between_them_and_long_names_a_line_each():
    def drawn(places, *names):
        lines = tuple(Line(name=name, x=places, y=places) for name in names)
        return json.dumps(spec(Chart(title="", x="x", y="y", lines=lines)))

    whole = tuple(map(float, range(20)))
    assert '"tickMinStep": 1' in drawn(whole, "a")
    assert "tickMinStep" not in drawn((*whole, 20.5), "a")
    assert '"columns": 2' in drawn(whole, "a", "b")
    assert '"columns": 1' in drawn(whole, "a", "b" * 30)


def test_a_block_is_named_by_the_rows_it_stands_for(folder):
    panel = Panel(name="p", values=((0, 1), (2, 3)), whole=(64, 32))
    shown = finding().model_copy(update={"pictures": (Picture(title="t", x="x", y="y", panels=(panel,), first=1),)})
    folder.keep("order", {}, shown)
    page = build_findings(folder.path).read_text(encoding="utf-8")
    assert 'data-first="1" data-rows="64" data-columns="32"' in page
    assert "64 rows, 32 columns" in page


def test_a_matrix_has_the_colours_of_its_numbers():
    picture = finding().pictures[0]
    scale = Scale.of(picture)
    assert (scale.step(0), scale.step(3)) == (0, 255)
    nearly = picture.model_copy(update={"panels": (Panel(name="p", values=((1e-21, 0.5),)),)})
    assert (Scale.of(nearly).low, Scale.of(nearly).high) == (0.0, 0.5)
    both = Scale.of(picture.model_copy(update={"middle": 1.0}))
    assert both.step(1.0) in (127, 128)
    assert image(picture.panels[0].values, scale).startswith("data:image/png;base64,iVBOR")
    assert palette([(0, 0, 0), (255, 255, 255)])[128] == (128, 128, 128)


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, ""), (0.0, "0"), (12, "12"), (0.12345, "0.123"), (2.7e-16, "2.7e-16"), (12345.6, "12,346"), ("a", "a")],
)
def test_numbers_are_short(value, said):
    assert number(value) == said


def test_a_folder_without_findings_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"stand beside a subject\.json"):
        build_findings(tmp_path)
