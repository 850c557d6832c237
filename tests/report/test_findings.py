import json
import re

import pytest

from ordinate.core.finding import Chart, Estimate, Finding, Heatmap, HeatmapGrid, Line, Table, format_number
from ordinate.probing.runner.probe_folder import ProbeFolder
from ordinate.report.build import build_findings
from ordinate.report.charts import finding_chart
from ordinate.report.findings import notebook_card, read_findings
from ordinate.report.heatmap import ColourScale, heatmap_image, palette

FACTS = {"name": "tiny", "family": "gpt2", "kind": "decoder", "layers": 2, "heads": 2, "width": 8, "position": "rope"}
HOSTILE = '</script><img src=x onerror=alert(1)>"\u202e\0'


def finding(text="text", question="order_sensitivity"):
    chart = Chart(title=text, x=text, y=text, caption=text, lines=(
        Line(name=text, x=(1, 2), y=(0.5, None), low=(0.4, 0.1), high=(0.6, 0.3)),
        Line(name="chance", x=(1, 2), y=(0, 0), null=True),
    ))  # fmt: skip
    picture = HeatmapGrid(
        title=text, x=text, y=text, panels=(Heatmap(name=text, values=((0, 1), (2, 3)), note=text),)
    )
    table = Table(title=text, columns=(text, "b"), rows=((text, 1.5),), caption=text)
    estimate = Estimate(name=text, value=0.25, low=0.1, high=0.4, null=0.0, unit=text)
    return Finding(question=question, title=text, grade="weakly", effect=estimate, answer=text,
                   estimates=(estimate,) * 8, tables=(table,), charts=(chart,), pictures=(picture,), method=text,
                   null=text, caveats=(text,))  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    made = ProbeFolder(tmp_path)
    made.open({"model": "tiny"}, {"facts": FACTS, "read": "texts", "command": "ordinate probe tiny"})
    return made


def test_the_page_has_every_part_and_fetches_nothing(folder):
    folder.save("order_sensitivity", {}, finding())
    folder.save("qk_roles", {}, Finding(question="qk_roles", title="Q and K?", status="skipped", answer="no heads"))
    folder.save_failure("positional_heads", "Two to the left?", "Traceback\nValueError: it broke")
    page = build_findings(folder.path).read_text(encoding="utf-8")
    assert page.count("<strong>Weakly. Text: 0.2 [0.1, 0.4] text (without effect: 0).</strong> text") == 2
    for part in ("What does position do inside tiny?", "0.25", "<span>0.1</span> to <span>0.4</span>",
                 "no heads", "ValueError: it broke",
                 "2 more numbers", "ordinate probe tiny", "prefers-color-scheme: dark", "@media print"):  # fmt: skip
        assert part in page
    assert page.index('id="order_sensitivity"') < page.index('id="qk_roles"') < page.index('id="positional_heads"')
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?://|url\(|@import|<link|<iframe", outside)
    assert "default-src 'none'" in page
    assert build_findings(folder.path).read_text(encoding="utf-8") == page


def test_text_from_data_never_becomes_an_element(folder):
    folder.save("order_sensitivity", {}, finding())
    plain = build_findings(folder.path).read_text(encoding="utf-8")
    folder.save("order_sensitivity", {}, finding(HOSTILE))
    page = build_findings(folder.path).read_text(encoding="utf-8")
    assert page.count("<img") == plain.count("<img")
    assert page.count("</script>") == plain.count("</script>")
    assert "\u202e" not in page
    shown = notebook_card(finding(HOSTILE))
    assert shown.count("<img") == notebook_card(finding()).count("<img")


def test_a_chart_skips_missing_values_and_greys_the_null_line():
    drawn = json.dumps(finding_chart(finding().charts[0]))
    assert drawn.count('"x": 2') == 1
    assert "#8a93a1" in drawn


def test_whole_places_have_no_marks_between_them_and_long_names_a_line_each():
    def drawn(places, *names):
        lines = tuple(Line(name=name, x=places, y=places) for name in names)
        return json.dumps(finding_chart(Chart(title="", x="x", y="y", lines=lines)))

    whole = tuple(map(float, range(20)))
    assert '"tickMinStep": 1' in drawn(whole, "a")
    assert "tickMinStep" not in drawn((*whole, 20.5), "a")
    assert '"columns": 2' in drawn(whole, "a", "b")
    assert '"columns": 1' in drawn(whole, "a", "b" * 30)


def test_a_block_is_named_by_the_rows_it_stands_for(folder):
    panel = Heatmap(name="p", values=((0, 1), (2, 3)), whole=(64, 32))
    shown = finding().model_copy(
        update={"pictures": (HeatmapGrid(title="t", x="x", y="y", panels=(panel,), first=1),)}
    )
    folder.save("order_sensitivity", {}, shown)
    page = build_findings(folder.path).read_text(encoding="utf-8")
    assert 'data-first="1" data-rows="64" data-columns="32"' in page
    assert "64 rows, 32 columns" in page


def test_a_matrix_has_the_colours_of_its_numbers():
    picture = finding().pictures[0]
    scale = ColourScale.of(picture)
    assert (scale.step(0), scale.step(3)) == (0, 255)
    nearly = picture.model_copy(update={"panels": (Heatmap(name="p", values=((1e-21, 0.5),)),)})
    assert (ColourScale.of(nearly).low, ColourScale.of(nearly).high) == (0.0, 0.5)
    both = ColourScale.of(picture.model_copy(update={"middle": 1.0}))
    assert both.step(1.0) in (127, 128)
    assert heatmap_image(picture.panels[0].values, scale).startswith("data:image/png;base64,iVBOR")
    assert palette([(0, 0, 0), (255, 255, 255)])[128] == (128, 128, 128)


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, ""), (0.0, "0"), (12, "12"), (0.12345, "0.123"), (2.7e-16, "2.7e-16"), (12345.6, "12,346"), ("a", "a")],
)
def test_numbers_are_short(value, said):
    assert format_number(value) == said


def test_a_folder_without_findings_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"needs a readable subject\.json"):
        build_findings(tmp_path)


def test_a_damaged_finding_is_told_by_name_and_the_others_shown(folder):
    folder.save("order_sensitivity", {}, finding())
    folder.save("qk_roles", {}, finding("roles", "qk_roles"))
    one, other = folder.finding("order_sensitivity"), folder.finding("qk_roles")
    whole = one.read_bytes()
    for harm, said in (
        (whole[:-4] + b"9" + whole[-3:], "a file must match its checksum"),
        (whole[:-40], "a file must match its checksum"),
        (b"{" + whole.partition(b",")[2], "a file must start with the checksum of its content"),
        (other.read_bytes(), "a file must hold the finding that it is named after"),
    ):
        one.write_bytes(harm)
        found = read_findings(folder.path)
        assert [kept.question for kept in found.findings] == ["qk_roles"]
        assert said in found.damaged["order_sensitivity"]
        assert f"{one}" in found.damaged["order_sensitivity"]
        assert "repeat the command of the probes, which measures it again" in found.damaged["order_sensitivity"]
        assert folder.load("order_sensitivity", {}) is None
    page = build_findings(folder.path).read_text(encoding="utf-8")
    assert "The finding cannot be used: a file must hold the finding" in page
    assert "roles" in page
    folder.subject.write_bytes(folder.subject.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"needs a readable subject\.json.*checksum"):
        read_findings(folder.path)
