import math

import pytest

from ordinate.core import catalog
from ordinate.schemes._plot_data import TOKENS, HeatmapData, LinePlotData, scheme_plots
from ordinate.schemes._plots import build_scheme

SCHEMES = catalog.names("ordinate.schemes")


def numbers(picture):
    if isinstance(picture, HeatmapData):
        return [number for row in picture.numbers for number in row]
    return [number for line in picture.lines.values() for number in line]


@pytest.mark.parametrize("name", [*SCHEMES, "rope+alibi", "rope/none,none"])
def test_every_scheme_has_plots(name):
    scheme = build_scheme(name)
    drawn = scheme_plots(scheme)
    assert bool(drawn) == bool(scheme.hooks)
    for picture in drawn:
        assert not any(math.isinf(number) for number in numbers(picture))
        assert any(math.isfinite(number) for number in numbers(picture))


def test_the_plots_of_alibi_show_its_slopes():
    table, curves = scheme_plots(build_scheme("alibi"))
    assert table.numbers[3][:4] == [-0.75, -0.5, -0.25, 0]
    assert math.isnan(table.numbers[0][1])
    assert curves.lines["head 0"] == [-0.25 * distance for distance in range(TOKENS)]
    assert curves.along == "offset [tokens]"


def test_identical_heads_are_one_line():
    (_, curves) = scheme_plots(build_scheme("rope"))
    assert isinstance(curves, LinePlotData)
    assert list(curves.lines) == ["all heads"]
    assert curves.lines["all heads"][0] == pytest.approx(1, abs=1e-6)
