import csv
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from ordinate.core.atomic_files import write_checksummed
from ordinate.report.build import build_report
from ordinate.report.charts import StudyCharts
from ordinate.report.html import script_safe_json
from ordinate.report.read import load_study
from ordinate.report.study_facts import subtitle
from ordinate.report.summary import summarise

SCHEMES = ("none", "sinusoidal", "rope", "alibi")

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "\u202edesrever",
    "nul\0byte",
    "{{ 7 * 7 }}",
    "a" * 100_000,
    "\ud800",
]


class Elements(HTMLParser):
    """Counts elements, and collects attributes that could run code or fetch."""

    def __init__(self):
        super().__init__()
        self.counts, self.acting, self.inside = {}, [], None

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.acting += [(tag, name) for name, _ in attributes if name.startswith("on") or name in ("src", "href")]


def elements(html):
    parser = Elements()
    parser.feed(html)
    return parser


def replaced(value, text):
    """Replace every string in a value except those that decide how it is parsed."""
    if isinstance(value, dict):
        keep = ("status", "scheme", "label", "schemes", "match", "name")
        return {key: item if key in keep else replaced(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, text) for item in value]
    return text if isinstance(value, str) else value


@pytest.mark.covering(0)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_text_from_data_never_becomes_an_element(write, text, result):
    plain = elements(build_report(write([result("rope", 0), result("alibi", 0)])).path.read_text(encoding="utf-8"))
    results = [replaced(result(label, 0), text) for label in ("rope", "alibi")]
    about = {"text": {"name": text, "sha256": text, "held_out": text}, "command": text, "code": text}
    machine = {"machine": {"system": text}, "versions": {text: text}}
    page = build_report(write(results, **about, **machine)).path.read_text(encoding="utf-8")
    found = elements(page)
    small = {tag: count for tag, count in found.counts.items() if tag not in ("dt", "dd")}
    assert small == {tag: count for tag, count in plain.counts.items() if tag not in ("dt", "dd")}
    assert found.acting == []
    assert "\0" not in page
    assert "\u202e" not in page


def test_scheme_labels_are_escaped_in_charts_too(write, result):
    label = "x</script><b>"
    folder = write([result(label, 0), result("rope", 0)], schemes=(label, "rope"))
    page = build_report(folder).path.read_text(encoding="utf-8")
    assert "</script><b>" not in page
    assert elements(page).counts.get("b") is None


def test_json_in_a_script_element_cannot_end_it():
    hostile = {"a": "</script><!--", "b": "\u2028&"}
    text = script_safe_json(hostile)
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == hostile


def test_the_page_fetches_nothing(write, result):
    page = build_report(write([result(label, 0) for label in SCHEMES])).path.read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?://|url\(|@import|<link|<iframe", outside)
    assert page.count("window.vegaEmbed=") == 1


def test_the_page_has_its_parts(write, result):
    page = build_report(write([result(label, 0) for label in SCHEMES])).path.read_text(encoding="utf-8")
    for part in (
        "use “rope” if",
        "“rope” leads",
        "Paired differences to the best",
        "ordinate study --out study",
        "abab",
        "2.13.0",
        "Linux",
        "def ",
        "width",
    ):
        assert part in page


@pytest.mark.extended
def test_a_report_built_again_is_the_same_to_the_byte(write, result):
    folder = write([result(label, 0) for label in SCHEMES])
    report = build_report(folder).path
    first, table = report.read_bytes(), (folder / "results.csv").read_bytes()
    build_report(folder)
    assert report.read_bytes() == first
    assert (folder / "results.csv").read_bytes() == table


def test_results_csv_has_a_row_for_every_planned_scheme_and_no_costs(write, result):
    folder = write([result("rope", 0), result("alibi", 0)])
    build_report(folder)
    rows = list(csv.DictReader((folder / "results.csv").read_text().splitlines()))
    assert [row["scheme"] for row in rows] == ["rope", "alibi", "none", "sinusoidal"]
    assert rows[0]["status"] == "1 done"
    assert rows[2]["status"] == "1 pending"
    costs = list(csv.DictReader((folder / "costs.csv").read_text().splitlines()))
    assert [row["scheme"] for row in costs] == ["rope", "alibi", "none", "sinusoidal"]
    assert list(costs[0])[-2:] == ["tokens_per_second", "peak_memory_mb"]
    assert not {"tokens_per_second", "peak_memory_mb"} & set(rows[0])
    assert float(rows[1]["behind_best_low"]) <= float(rows[1]["behind_best"]) <= float(rows[1]["behind_best_high"])


def test_a_study_without_results_still_has_a_report(write):
    page = build_report(write([])).path.read_text(encoding="utf-8")
    assert "No run has finished" in page


def test_charts_have_one_colour_and_one_line_a_scheme(write, snapshot, result):
    three = [result(label, seed) for label in ("rope", "alibi") for seed in range(2)]
    study = load_study(write(three, schemes=("rope", "alibi"), seeds=2))
    charts = StudyCharts(study, summarise(study))
    for name in ("training", "lengths", "positions", "order", "cost"):
        spec = getattr(charts, name)()
        datasets = list(spec["datasets"].values()) if "datasets" in spec else []
        assert all(row["scheme"] in ("rope", "alibi") for rows in datasets for row in rows if "scheme" in row)
        spec.pop("datasets", None)
        assert json.loads(re.sub(r"data-[0-9a-f]{32}", "data", json.dumps(spec))) == snapshot(name=name)


@pytest.mark.extended
def test_the_report_imports_no_torch():
    code = "import sys, ordinate.report.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no study\.json"):
        build_report(tmp_path)


def test_a_study_of_another_format_is_refused(write):
    with pytest.raises(ValueError, match="format 1 and 2"):
        build_report(write([], format=3))


def test_a_study_that_cannot_be_read_is_refused(write):
    folder = write([])
    (folder / "study.json").write_text("{")
    with pytest.raises(ValueError, match="must be readable"):
        build_report(folder)


def test_foreign_folders_are_ignored(write, result):
    folder = write([result("rope", 0)], schemes=("rope",))
    other = folder / "runs" / "someone-s0"
    other.mkdir()
    write_checksummed(other / "result.json", result("someone", 0))
    assert [item["run"]["label"] for item in load_study(folder).results] == ["rope"]


@pytest.mark.extended
def test_the_report_names_the_training_data(write, result):
    runs = [result(label, 0) for label in ("rope", "alibi", "none")]
    for run in runs:
        run["cost"] |= {"machine": "Abacus 7"}
    runs[2]["cost"]["hardware"] = {"devices": 2, "nodes": 1, "strategy": "fsdp"}
    page = build_report(write(runs)).path.read_text(encoding="utf-8")
    assert "<dt>2 runs</dt><dd>Abacus 7</dd><dt>1 run</dt><dd>Abacus 7: 2 devices, fsdp</dd>" in page
    runs[2]["cost"]["hardware"] = {"devices": 1, "nodes": 2, "strategy": None}
    assert "Abacus 7: 2 machines with 1 device each, ddp" in build_report(write(runs)).path.read_text(
        encoding="utf-8"
    )


def test_steps_at_equal_compute_are_shown(write, result):
    study = load_study(write([result("rope", 0), result("none", 0)]))
    assert "each trained with 1 seed for 20 steps of 4 x 16 tokens" in subtitle(study)
    study.manifest["plan"] |= {"match": "flops", "budgets": {"none": 1060, "rope": 55, "alibi": 60}}
    assert "each trained with 1 seed for 55 to 1,060 steps of 4 x 16 tokens" in subtitle(study)


def test_each_scheme_has_one_point_at_its_mean_speed(write, result):
    runs = [result(label, seed) for label in ("rope", "none") for seed in (0, 1)]
    for speed, run in enumerate(runs):
        run["cost"] = run["cost"] | {"tokens_per_second": 1000.0 + speed}
    study = load_study(write(runs, seeds=2))
    rows = StudyCharts(study, summarise(study)).cost()["data"]["values"]
    assert {row["scheme"]: row["speed"] for row in rows} == {"rope": 1000.5, "none": 1002.5}


def test_a_name_that_a_spreadsheet_would_take_for_a_formula_is_text():
    from ordinate.report.table import TableRow, to_csv

    rows = [TableRow(label, label, "softmax", "1 done", {"seeds": 1, "x": -0.5}, None) for label in ("=1+1", "rope")]
    text = to_csv([({"text": "@SUM(A1)", "width": 8}, rows)], mixers=False)
    assert text.splitlines()[1:] == ["'@SUM(A1),8,'=1+1,1 done,1,-0.5", "'@SUM(A1),8,rope,1 done,1,-0.5"]
