import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes.swin import Swin
from ordinate.testing import check_scheme


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (4, 2), (1, 5)])
def test_bias_and_gradient_are_the_table_at_each_distance(rows, columns):
    scheme = Swin(heads=3, rows=rows, columns=columns).double()
    where = Geometry.grid(rows, columns)
    bias, places = scheme.at(where).bias, where.q_pos[0].tolist()
    weights, slope = torch.randn_like(bias), torch.zeros_like(scheme.table)
    for h in range(3):
        for i, (r, c) in enumerate(places):
            for j, (s, d) in enumerate(places):
                row = (r - s + rows - 1) * (2 * columns - 1) + c - d + columns - 1
                assert bias[0, h, i, j] == scheme.table[row, h]
                slope[row, h] += weights[0, h, i, j]
    (bias * weights).sum().backward()
    assert torch.allclose(scheme.table.grad, slope, rtol=0, atol=1e-13)
    assert scheme.table.shape == ((2 * rows - 1) * (2 * columns - 1), 3)


def test_it_is_the_window_of_the_published_code():
    # relative_position_index of the published code, for a window of 3 x 4
    rows, columns = 3, 4
    coords = torch.stack(torch.meshgrid([torch.arange(rows), torch.arange(columns)], indexing="ij")).flatten(1)
    relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
    relative[:, :, 0] += rows - 1
    relative[:, :, 1] += columns - 1
    relative[:, :, 0] *= 2 * columns - 1
    scheme = Swin(heads=2, rows=rows, columns=columns)
    theirs = scheme.table[relative.sum(-1).view(-1)].view(12, 12, 2).permute(2, 0, 1)
    assert scheme.bias(Geometry.grid(rows, columns))[0].equal(theirs)


def test_it_agrees_with_transformers():
    library = pytest.importorskip("transformers.models.swin.modeling_swin")
    theirs = library.SwinRelativePositionBias(2, (3, 4))
    scheme = Swin(heads=2, rows=3, columns=4)
    with torch.no_grad():
        scheme.table.copy_(theirs.relative_position_bias_table.normal_())
    assert scheme.bias(Geometry.grid(3, 4)).equal(theirs())


def test_four_sides_have_numbers_of_their_own():
    bias = Swin(heads=1, rows=2, columns=2).bias(Geometry.grid(2, 2))[0, 0]
    up, left, right, down = bias[2, 0], bias[1, 0], bias[0, 1], bias[0, 2]
    assert len({up.item(), left.item(), right.item(), down.item(), bias[0, 0].item()}) == 5
    assert bias[3, 1] == up
    assert bias[3, 2] == left


def test_sizes_come_from_the_longest_text_unless_they_are_given():
    scheme = Swin(heads=2, max_length=5)
    assert (scheme.rows, scheme.columns, scheme.max_length) == (5, 5, 5)
    scheme = Swin(heads=200, max_length=5, rows=3)
    assert (scheme.rows, scheme.columns, scheme.max_length) == (3, 5, 5)
    assert abs(scheme.table.std().item() - 0.02) < 0.001


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, 2), r"swin supports rows 0 to 1 \(rows 2\); got 2; build it with rows=3 or more, or resize it"),
        ((2, 4), r"Swin serves positions 0 to 2 \(max_length 3\); got 0 to 3"),
    ],
)
def test_positions_beyond_the_grid_are_refused_by_the_hook_too(sizes, message):
    scheme = Swin(heads=2, rows=2, columns=3)
    for ask in (scheme.at, scheme.bias):
        with pytest.raises(ValueError, match=message):
            ask(Geometry.grid(*sizes))


def test_text_is_refused():
    with pytest.raises(ValueError, match="Swin takes positions with 2 axis; got 1 axes"):
        Swin(heads=2, rows=2, columns=2).at(Geometry.causal(2))


def cubic(x):
    # the kernel of bicubic interpolation with a = -3/4
    x, a = abs(x), -0.75
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def between(numbers, place):
    # four neighbours, the outermost repeated beyond the edge
    low = math.floor(place)
    inside = [min(max(low + step, 0), len(numbers) - 1) for step in (-1, 0, 1, 2)]
    return sum(numbers[j] * cubic(place - low - step) for j, step in zip(inside, (-1, 0, 1, 2), strict=True))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (2, 5), (1, 3)])
def test_a_resized_table_is_read_off_by_bicubic_interpolation(rows, columns):
    scheme = Swin(heads=2, rows=3, columns=3).double()
    made = scheme.resized(rows, columns)
    assert (made.rows, made.columns, made.table.dtype) == (rows, columns, torch.float64)
    assert made.table.requires_grad
    for head in range(2):
        old = scheme.table[:, head].reshape(5, 5).tolist()
        new = made.table[:, head].reshape(2 * rows - 1, 2 * columns - 1)
        for r in range(2 * rows - 1):
            y = (r + 0.5) * 5 / (2 * rows - 1) - 0.5
            for c in range(2 * columns - 1):
                x = (c + 0.5) * 5 / (2 * columns - 1) - 0.5
                exact = between([between(line, x) for line in old], y)
                assert abs(new[r, c].item() - exact) <= 1e-14


def test_resizing_is_that_of_the_published_code():
    # load_pretrained of the published code: bicubic, for square windows
    scheme = Swin(heads=3, rows=4, columns=4)
    plane = scheme.table.detach().permute(1, 0).view(1, 3, 7, 7)
    theirs = torch.nn.functional.interpolate(plane, size=(11, 11), mode="bicubic").view(3, 121).permute(1, 0)
    assert torch.allclose(scheme.resized(6, 6).table, theirs, rtol=0, atol=1e-7)
    assert scheme.resized(4, 4).table.equal(scheme.table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "swin needs rows and columns; got None and None; give both, or max_length"),
        ({"rows": 3}, "swin needs rows and columns; got 3 and None; give both, or max_length"),
        ({"max_length": 4, "rows": 0}, "rows must be above zero; got 0"),
        ({"rows": 3, "columns": -1}, "columns must be above zero; got -1"),
        ({"max_length": 4, "heads": 0}, "heads must be above zero; got 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Swin(**{"heads": 2} | options)


@pytest.mark.extended
def test_sizes_of_its_own_keep_the_contract():
    broken = [f"{one.name}: {one.message}" for one in check_scheme(Swin, rows=70, columns=70) if one.message]
    assert not broken, "\n".join(broken)


def test_positions_of_two_axes_have_no_table_by_offset_in_memory():
    pos = Geometry.grid(3, 4).q_pos
    at = Swin(heads=2, rows=3, columns=4).at(Geometry(pos, pos, consecutive=True))
    assert at.offset_table is None
    assert at.bias.shape == (1, 2, 12, 12)
