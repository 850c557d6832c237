import io
import json
import shutil
import struct
import sys
import zlib
from dataclasses import replace
from statistics import fmean
from types import SimpleNamespace

import pages
import pictures
import pytest
from pictures import IMAGES, REPORT, Picture, difference, read_record, report_page, spec, stale, with_record
from PIL import Image

from ordinate.cli.save_plot import scheme_chart
from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.schemes._plot_data import scheme_plots
from ordinate.schemes._plots import build_scheme

CHART = {
    "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
    "data": {"values": [{"x": 1, "y": 0.25}, {"x": 2, "y": -3.5}]},
    "mark": "line",
    "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
}


@pytest.fixture(scope="module")
def picture():
    return Picture(CHART, {"scale": 1})


@pytest.fixture(scope="module")
def drawn(picture):
    return picture.png()


def changed(picture, **values):
    source = json.loads(json.dumps(picture.source))
    source["data"]["values"][0] |= values
    return replace(picture, source=source)


def test_a_picture_keeps_what_it_was_drawn_from(picture, drawn):
    record = read_record(drawn)
    assert record["source"]["data"] == CHART["data"]
    assert record["settings"] == {"scale": 1}
    # a new version of Vega-Lite does not make a picture stale
    assert "$schema" not in record["source"]
    with Image.open(io.BytesIO(drawn)) as opened:
        opened.load()
    again = with_record(drawn, "other")
    assert read_record(again) == "other"
    assert read_record(with_record(again, record)) == record
    assert len(with_record(again, record)) == len(drawn)
    # every checksum is right
    place = 8
    while place < len(drawn):
        (size,) = struct.unpack(">I", drawn[place : place + 4])
        assert struct.unpack(">I", drawn[place + 8 + size : place + 12 + size]) == (
            zlib.crc32(drawn[place + 4 : place + 8 + size]),
        )
        place += 12 + size


def test_a_picture_is_stale_if_it_was_drawn_from_something_else(picture, drawn, tmp_path):
    path = tmp_path / "one" / "chart.png"
    assert stale({path: picture}, tmp_path) == {path: "it is missing"}
    path.parent.mkdir()
    path.write_bytes(drawn)
    assert stale({path: picture}, tmp_path) == {}
    assert stale({path: changed(picture, y=0.2501)}, tmp_path) == {path: "source.data.values[0].y: 0.25 -> 0.2501"}
    assert stale({path: replace(picture, settings={"scale": 2})}, tmp_path) == {path: "settings.scale: 1 -> 2"}
    # what other processors round differently
    assert stale({path: changed(picture, y=0.250001)}, tmp_path) == {}
    assert stale({}, tmp_path) == {path: "nothing says how to draw it"}
    Image.new("RGB", (7, 7)).save(path)
    assert stale({path: picture}, tmp_path) == {path: "it does not say what it was drawn from"}
    path.write_bytes(b"GIF")
    with pytest.raises(ValueError, match="a picture must be a PNG file; it begins with b'GIF'; draw it again"):
        stale({path: picture}, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, ""),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, "a: 2 -> 3 entries"),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "a: b, c"),
        ({"a": True}, {"a": 1}, "a: 'True' -> '1'"),
        ({"a": 1e-6}, {"a": 0}, ""),
        ({"a": 1e-3}, {"a": 0}, "a: 0.001 -> 0"),
        ({"a": 1.0}, {"a": 1.001}, "a: 1.0 -> 1.001"),
        ({"a": "x\n y\nz"}, {"a": "x\n why\nz"}, "a: ' y' -> ' why'"),
        ({"a": "x"}, {"a": "x\ny"}, "a: '1 lines' -> '2 lines'"),
    ],
)
def test_the_first_difference_is_named(old, new, said):
    assert difference(old, new) == said


@pytest.mark.extended
@pytest.mark.parametrize("name", ["rope", "t5", "sinusoidal"])
def test_the_committed_picture_of_a_scheme_is_that_of_the_code(name):
    def record(text):
        return Picture(spec(scheme_chart(text, scheme_plots(build_scheme(text)))), {"scale": 1.2}).record

    stored = read_record((IMAGES / "schemes" / f"{name}.png").read_bytes())
    assert not difference(stored, record(name))
    other = {"rope": "rope:theta=9000", "t5": "t5:buckets=30", "sinusoidal": "sinusoidal:theta=9000"}[name]
    assert difference(stored, record(other))


def read_speed(folder):
    found = [read_checksummed(path) for path in folder.glob("runs/rope-s*/result.json")]
    return fmean(result["cost"]["tokens_per_second"] for result in found)


@pytest.mark.extended
def test_the_picture_of_a_report_depends_on_its_results_only(tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(REPORT, copy)
    record = read_record((IMAGES / "report.png").read_bytes())["source"]
    page = report_page(copy)
    assert not difference(record, page)
    # both change with the versions of libraries
    assert "Content-Security-Policy" not in page
    assert "<script" not in page
    about = read_checksummed(copy / "study.json")
    about |= {"machine": about["machine"] | {"processor": "another"}, "code": "0" * 64, "command": "ordinate study"}
    about["versions"] = dict.fromkeys(about["versions"], "9.9")
    write_checksummed(copy / "study.json", about)
    assert not difference(record, report_page(copy))
    path = copy / "runs" / "rope-s0" / "result.json"
    result = read_checksummed(path)
    # of two seeds the mean is shown
    speed = f"{read_speed(copy):,.0f}"
    result["cost"]["tokens_per_second"] += 10
    write_checksummed(path, result)
    assert speed in difference(record, report_page(copy))


def test_a_page_needs_a_browser(monkeypatch):
    monkeypatch.setattr(pictures.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"the picture of a page needs Chromium; none of .* is found; install it"):
        Picture("<p>", {"width": 10, "height": 10}).png()


def test_lint_lists_stale_pictures(picture, monkeypatch, capsys):
    path = IMAGES / "schemes" / "rope.png"
    drawn = SimpleNamespace(pictures=dict, stale=lambda found: {path: "it is missing"}, said=pictures.said)
    monkeypatch.setitem(sys.modules, "pictures", drawn)
    monkeypatch.setattr(pages, "every_page", dict)
    monkeypatch.setattr(sys, "argv", ["pages.py", "--check"])
    with pytest.raises(SystemExit, match="1"):
        pages.main()
    said = "docs/images/schemes/rope.png is stale (it is missing): run ./dev pictures rope\n"
    assert capsys.readouterr().out == said
    drawn.stale = lambda found: {}
    with pytest.raises(SystemExit, match="0"):
        pages.main()


def test_a_mistyped_option_draws_nothing():
    assert pictures.options(["report", "schemes/"]).names == ["report", "schemes/"]
    with pytest.raises(SystemExit, match="2"):
        pictures.options(["--al", "--chek"])
