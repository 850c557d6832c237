import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import LearnedGrid
from ordinate.testing import check_scheme

CELLS = torch.tensor([[[0, 0], [0, 4], [2, 1]], [[1, 3], [1, 3], [2, 4]]])


def test_it_adds_the_vector_of_each_cell():
    scheme = LearnedGrid(width=5, max_length=9, rows=3, columns=5).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    expected = x.clone()
    for row in range(2):
        for token in range(3):
            for channel in range(5):
                i, j = CELLS[row, token].tolist()
                expected[row, token, channel] += scheme.table[i, j, channel].item()
    assert scheme.embed(x, CELLS).equal(expected)


def test_each_vector_gets_the_gradients_of_its_cell():
    scheme = LearnedGrid(width=5, max_length=9, rows=3, columns=5).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, 5, dtype=torch.float64)
    (scheme.embed(x, CELLS) * weights).sum().backward()
    expected = torch.zeros(3, 5, 5, dtype=torch.float64)
    for row in range(2):
        for token in range(3):
            i, j = CELLS[row, token].tolist()
            expected[i, j] += weights[row, token]
    assert torch.allclose(scheme.table.grad, expected, rtol=0, atol=1e-15)
    assert x.grad.equal(weights)


def test_a_whole_grid_is_read_row_by_row():
    scheme = LearnedGrid(width=4, max_length=6)
    out = scheme.at(Geometry.grid(6, 6)).embed(torch.zeros(1, 36, 4))
    assert out[0].equal(scheme.table.flatten(0, 1))


def test_vectors_are_initialised_with_the_given_scale():
    scheme = LearnedGrid(width=100, max_length=10, scale=0.5)
    assert scheme.table.shape == (10, 10, 100)
    assert abs(scheme.table.std().item() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("cell", "came"),
    [
        ((3, 0), "got rows 3 to 3 and columns 0 to 0"),
        # the place of cell (1, 0) in a flat table
        ((0, 5), "got rows 0 to 0 and columns 5 to 5"),
        ((1, -1), "got rows 1 to 1 and columns -1 to -1"),
    ],
)
def test_a_cell_beyond_the_table_is_refused_and_never_taken_for_another(cell, came):
    scheme, where = (
        LearnedGrid(width=4, max_length=9, rows=3, columns=5),
        Geometry.from_positions(torch.tensor([[cell]])),
    )
    for ask in (lambda: scheme.at(where), lambda: scheme.embed(torch.zeros(1, 1, 4), where.q_pos)):
        with pytest.raises(ValueError, match=rf"has 3 rows and 5 columns, counted from 0; {came}; resize"):
            ask()


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (9, 4), (2, 13), (1, 1)])
def test_between_cells_the_table_is_interpolated_as_pytorch_does(rows, columns):
    scheme = LearnedGrid(width=4, max_length=9, rows=3, columns=5).double()
    cells = (Geometry.grid(rows, columns).q_pos + 0.5) * torch.tensor(
        [3 / rows, 5 / columns], dtype=torch.float64
    ) - 0.5
    weights, plane = torch.randn(1, rows * columns, 4).double(), scheme.table.permute(2, 0, 1)[None]
    out = scheme.at(Geometry.from_positions(cells)).embed(torch.zeros(1, rows * columns, 4, dtype=torch.float64))
    expected = torch.nn.functional.interpolate(plane, size=(rows, columns), mode="bicubic")
    expected = expected.flatten(2).mT
    assert torch.allclose(out, expected, rtol=0, atol=1e-13)
    one, other = (torch.autograd.grad((x * weights).sum(), scheme.table)[0] for x in (out, expected))
    assert torch.allclose(one, other, rtol=0, atol=1e-13)


def test_cells_half_a_cell_beyond_the_table_and_other_axes_are_refused():
    scheme = LearnedGrid(width=4, max_length=9)
    scheme.at(Geometry.from_positions(torch.full((1, 1, 2), -0.5, dtype=torch.float64)))
    with pytest.raises(ValueError, match=r"got rows -0\.75 to -0\.75"):
        scheme.at(Geometry.from_positions(torch.full((1, 1, 2), -0.75, dtype=torch.float64)))
    with pytest.raises(ValueError, match=r"got rows 8\.75 to 8\.75"):
        scheme.at(Geometry.from_positions(torch.full((1, 1, 2), 8.75, dtype=torch.float64)))
    with pytest.raises(ValueError, match="LearnedGrid takes positions with 2 axis; got 1 axes"):
        scheme.at(Geometry.causal(3))


@pytest.mark.parametrize("name", ["width", "rows", "columns", "scale"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        LearnedGrid(**{"width": 4, "max_length": 7, name: 0})
    with pytest.raises(ValueError, match="rows must be above zero; got 0"):
        LearnedGrid(width=4, max_length=0)


def cubic(t, a):
    """Keys' cubic: 1 at 0, and 0 at every other whole number."""
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def weights_of(i, size, new, antialias):
    """The share of each of `size` old cells in cell `i` of `new` ones."""
    place = (i + 0.5) * size / new - 0.5
    shares = [0.0] * size
    if not antialias:
        for j in range(math.floor(place) - 1, math.floor(place) + 3):
            shares[min(max(j, 0), size - 1)] += cubic(place - j, -0.75)
        return shares
    # the cubic is as wide as the new cells; shares beyond the edge are left out
    step = max(size / new, 1.0)
    centre = (i + 0.5) * size / new
    first, last = max(int(centre - 2 * step + 0.5), 0), min(int(centre + 2 * step + 0.5), size)
    for j in range(first, last):
        shares[j] = cubic((j + 0.5 - centre) / step, -0.5)
    return [share / sum(shares) for share in shares]


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(14, 14), (3, 2), (5, 7), (4, 13), (1, 1), (9, 1), (1, 9)])
def test_a_table_is_resized_by_bicubic_interpolation(rows, columns, antialias):
    scheme = LearnedGrid(width=2, max_length=1, rows=5, columns=6).double()
    other = scheme.resized(rows, columns, antialias=antialias)
    exact = torch.zeros(rows, columns, 2, dtype=torch.float64)
    for i in range(rows):
        for j in range(columns):
            across, down = weights_of(i, 5, rows, antialias), weights_of(j, 6, columns, antialias)
            for r in range(5):
                for c in range(6):
                    exact[i, j] += across[r] * down[c] * scheme.table[r, c].detach()
    assert torch.allclose(other.table, exact, rtol=0, atol=1e-12 * 0.1)
    assert other.table.shape == (rows, columns, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_table_of_the_same_size_is_the_same_bit_by_bit_and_a_parameter_of_its_own(dtype):
    scheme = LearnedGrid(width=3, max_length=7, rows=4).to(dtype)
    other = scheme.resized(4, 7)
    assert other.table.equal(scheme.table)
    assert other.table.dtype == dtype
    with torch.no_grad():
        other.table.add_(1)
    assert not other.table.equal(scheme.table)


def test_as_many_cells_in_another_shape_are_another_table():
    scheme = LearnedGrid(width=3, max_length=1, rows=2, columns=8)
    assert not scheme.resized(4, 4).table.flatten(0, 1).equal(scheme.table.flatten(0, 1))


def test_a_resized_table_is_independent_and_supports_its_new_size():
    scheme = LearnedGrid(width=3, max_length=4).eval()
    before = torch.random.get_rng_state()
    other = scheme.resized(2, 6)
    assert torch.random.get_rng_state().equal(before)
    assert not other.training
    other.embed(torch.zeros(1, 1, 3), torch.tensor([[[1, 5]]])).sum().backward()
    assert other.table.grad[1, 5].tolist() == [1, 1, 1]
    assert scheme.table.grad is None
    with pytest.raises(ValueError, match="has 2 rows and 6 columns"):
        other.at(Geometry.grid(3, 6))


@pytest.mark.parametrize(("rows", "columns", "name"), [(0, 3, "rows"), (3, -1, "columns")])
def test_resizing_to_nothing_is_refused(rows, columns, name):
    with pytest.raises(ValueError, match=f"{name} must be above zero"):
        LearnedGrid(width=3, max_length=4).resized(rows, columns)


@pytest.mark.extended
def test_it_keeps_the_contract_with_sizes_of_its_own():
    broken = {came.name: came.message for came in check_scheme(LearnedGrid, rows=70, columns=64) if came.message}
    assert broken == {}


def test_it_resizes_as_vit_in_transformers_does():
    vit = pytest.importorskip("transformers.models.vit.modeling_vit")
    config = vit.ViTConfig(hidden_size=6, image_size=20, patch_size=4, num_attention_heads=1, num_hidden_layers=1)
    theirs = vit.ViTEmbeddings(config).double()
    with torch.no_grad():
        theirs.position_embeddings.normal_()
    scheme = LearnedGrid(width=6, max_length=5).double()
    with torch.no_grad():
        scheme.table.copy_(theirs.position_embeddings[0, 1:].unflatten(0, (5, 5)))
    for rows, columns in ((5, 5), (9, 3), (3, 4)):
        made = theirs.interpolate_pos_encoding(torch.zeros(1, 1 + rows * columns, 6), 4 * rows, 4 * columns)
        ours = scheme.resized(rows, columns, antialias=False)
        assert torch.allclose(ours.table.flatten(0, 1), made[0, 1:], rtol=0, atol=1e-12)
