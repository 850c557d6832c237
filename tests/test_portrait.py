import math

import pytest

from ordinate import catalog
from ordinate.portrait import TOKENS, Curves, Table, portrait, read

SCHEMES = catalog.names("ordinate.schemes")


def numbers(picture):
    if isinstance(picture, Table):
        return [number for row in picture.numbers for number in row]
    return [number for line in picture.lines.values() for number in line]


@pytest.mark.parametrize("name", [*SCHEMES, "rope+alibi", "rope/none,none"])
def test_a_scheme_draws_what_it_does(name):
    scheme = read(name)
    drawn = portrait(scheme)
    assert bool(drawn) == bool(scheme.hooks)
    for picture in drawn:
        assert not any(math.isinf(number) for number in numbers(picture))
        assert any(math.isfinite(number) for number in numbers(picture))


def test_the_portrait_of_alibi_is_its_slopes():
    table, curves = portrait(read("alibi"))
    assert table.numbers[3][:4] == [-0.75, -0.5, -0.25, 0]
    assert math.isnan(table.numbers[0][1])
    assert curves.lines["head 0"] == [-0.25 * distance for distance in range(TOKENS)]
    assert curves.along == "distance [tokens]"


def test_heads_that_do_the_same_are_one_line():
    (_, curves) = portrait(read("rope"))
    assert isinstance(curves, Curves)
    assert list(curves.lines) == ["all heads"]
    assert curves.lines["all heads"][0] == pytest.approx(1, abs=1e-6)
