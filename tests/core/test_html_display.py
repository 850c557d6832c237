"""Plots and tables for notebooks: well-formed, escaped, and of the numbers given."""

import math
import re
from xml.etree import ElementTree

import pytest
import torch

from ordinate import Geometry
from ordinate.core.finding import Estimate, Finding
from ordinate.core.geometry import SHOWN_TOKENS
from ordinate.core.html_display import HEIGHT, SHADES, TOP, beside, heatmap, html_table, line_plot, standalone

HOSTILE = "<script>alert('x')</script>"
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    return ElementTree.fromstring(svg)


def cells(svg):
    """How many cells are drawn in each colour and opacity."""
    return {(p.get("fill"), p.get("fill-opacity")): p.get("d").count("M") for p in parsed(svg).iter(f"{SVG}path")}


def points(svg):
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in parsed(svg).iter(f"{SVG}polyline")
    ]


def test_a_curve_goes_through_its_numbers():
    (line,) = points(line_plot({"": [0.0, 1.0, math.nan, 4.0]}, title="t", along="x"))
    assert len(line) == 3
    heights = [line[0][1] - y for _, y in line]
    assert heights[1] == pytest.approx(heights[2] / 4, abs=0.1)
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert line[2][1] == TOP


def test_several_curves_have_names_and_an_only_one_has_none():
    several = line_plot({"one": [0, 1], "two": [1, 0]}, title="t", along="x")
    assert ">one<" in several
    assert ">two<" in several
    assert ">one<" not in line_plot({"one": [0, 1]}, title="t", along="x")


@pytest.mark.parametrize("line", [[], [3.0], [0.0, 0.0], [2.0, 2.0, 2.0 + 1e-9], [math.nan]])
def test_a_curve_without_a_range_is_drawn_inside(line):
    svg = line_plot({"": line}, title="t", along="x")
    assert all(TOP <= y <= HEIGHT for found in points(svg) for _, y in found)
    assert "nan" not in svg


def test_a_heatmap_has_a_cell_for_each_finite_number():
    drawn = cells(heatmap([[1.0, math.nan], [0.5, 0.0]], title="t", rows="r", columns="c"))
    assert sum(drawn.values()) == 3
    assert len(drawn) == 3
    signed = cells(heatmap([[1.0, -1.0, -1.0]], title="t", rows="r", columns="c"))
    assert sorted(signed.values()) == [1, 2]
    assert len({colour for colour, _ in signed}) == 2
    many = cells(heatmap([[x / 999 for x in range(1000)]], title="t", rows="r", columns="c"))
    assert len(many) == SHADES + 1


def test_text_is_escaped_everywhere():
    made = [
        line_plot({HOSTILE: [0, 1], "b": [1, 2]}, title=HOSTILE, along=HOSTILE),
        heatmap([[1.0]], title=HOSTILE, rows=HOSTILE, columns=HOSTILE),
        beside(HOSTILE, [], HOSTILE),
        html_table([HOSTILE], [[HOSTILE]]),
    ]
    for text in made:
        assert "<script" not in text
        ElementTree.fromstring(text)


def test_a_plot_loads_nothing_and_takes_the_colour_of_the_text():
    svg = standalone(heatmap([[1.0]], title="t", rows="r", columns="c"))
    parsed(svg)
    assert "prefers-color-scheme:dark" in svg
    assert "currentColor" in svg
    assert not re.search(r"href|url\(|@import|http(?!://www.w3.org/2000/svg)", svg)


@pytest.mark.parametrize(
    ("where", "seen"),
    [
        (Geometry.causal(4), 10),
        (Geometry.causal(3, window=2), 5),
        (Geometry.packed([2, 3]), 9),
        (Geometry.padded(torch.tensor([[True, True, False], [True, True, True]])), 3),
        (Geometry.cross(2, 5), 10),
        (Geometry.causal(0), 0),
        (Geometry.cross(0, 5), 0),
    ],
)
def test_a_geometry_shows_who_sees_whom(where, seen):
    shown = where._repr_html_()
    drawn = sum(sum(cells(svg).values()) for svg in re.findall("<svg.*?</svg>", shown))
    assert drawn == seen == where.visible[0].sum()
    assert ("first of the batch" in shown) == (where.batch_size > 1)


def test_a_large_geometry_is_thinned_and_never_made_whole():
    where = Geometry.causal(3_000_001, cached=5)
    shown = where._repr_html_()
    (svg,) = re.findall("<svg.*?</svg>", shown)
    assert SHOWN_TOKENS < sum(cells(svg).values()) <= SHOWN_TOKENS**2
    assert f"Shown: {SHOWN_TOKENS} of the tokens." in shown


def test_a_geometry_is_described_by_its_structure():
    assert repr(Geometry.causal(3, cached=2, window=4)) == "Geometry(queries=3, keys=5, start=2, window=4, causal)"
    assert repr(Geometry.packed([2, 3], causal=False)) == "Geometry(queries=5, keys=5, documents)"
    real = torch.ones(2, 3).bool()
    assert repr(Geometry.padded(real)) == "Geometry(queries=3, keys=3, batch=2, causal, documents)"
    assert repr(Geometry.grid(2, 3)) == "Geometry(queries=6, keys=6, axes=2)"


def test_a_finding_shows_its_headline_and_estimates():
    estimate = Estimate(name=HOSTILE, value=0.5, low=0.4, high=0.6, unit="share")
    finding = Finding(question="q", title=HOSTILE, grade="yes", effect=estimate, answer="So.", estimates=(estimate,))
    shown = finding._repr_html_()
    ElementTree.fromstring(shown)
    assert "<script" not in shown
    assert "<td>0.5</td><td>0.4</td><td>0.6</td><td>share</td>" in shown
    assert "Yes." in shown
    skipped = Finding(question="q", title="t", status="skipped", answer="no images")
    assert "<table>" not in skipped._repr_html_()
