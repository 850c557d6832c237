import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Learned

POSITIONS = torch.tensor([[0, 1, 2, 6], [3, 3, 0, 5]])[..., None]


def test_it_adds_one_row_of_the_table_to_each_token():
    scheme = Learned(width=5, max_length=7).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    expected = x.clone()
    for row in range(2):
        for token in range(4):
            for column in range(5):
                expected[row, token, column] += scheme.table[POSITIONS[row, token, 0], column].item()
    assert scheme.embed(x, POSITIONS).equal(expected)


def test_each_row_of_the_table_gets_the_gradients_of_its_positions():
    scheme = Learned(width=5, max_length=7).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 4, 5, dtype=torch.float64)
    (scheme.embed(x, POSITIONS) * weights).sum().backward()
    expected = torch.zeros(7, 5, dtype=torch.float64)
    for row in range(2):
        for token in range(4):
            expected[POSITIONS[row, token, 0]] += weights[row, token]
    assert torch.allclose(scheme.table.grad, expected, rtol=0, atol=1e-15)
    assert (scheme.table.grad[4] == 0).all()
    assert x.grad.equal(weights)


def test_vectors_are_initialised_with_the_given_scale():
    assert abs(Learned(width=100, max_length=100, scale=0.5).table.std().item() - 0.5) < 0.02


@pytest.mark.parametrize(("pos", "came"), [(7, "got 7 to 7"), (-1, "got -1 to -1")])
def test_a_position_beyond_the_table_is_refused_and_never_clamped(pos, came):
    scheme, where = Learned(width=4, max_length=7), Geometry.from_positions(torch.tensor([[[pos]]]))
    for ask in (lambda: scheme.at(where), lambda: scheme.embed(torch.zeros(1, 1, 4), where.q_pos)):
        with pytest.raises(ValueError, match=rf"Learned serves positions 0 to 6 \(max_length 7\); {came}"):
            ask()


def test_the_remedy_names_the_length_that_would_do():
    with pytest.raises(ValueError, match="build it with max_length=100 or more, or shorten the input"):
        Learned(width=4, max_length=7).at(Geometry.causal(100))


def test_fractional_positions_are_refused():
    with pytest.raises(ValueError, match=r"Learned takes integer positions; got torch.float64; round them"):
        Learned(width=4, max_length=7).at(Geometry.from_positions(torch.tensor([[[0.5]]], dtype=torch.float64)))


@pytest.mark.parametrize("name", ["width", "max_length", "scale"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Learned(**{"width": 4, "max_length": 7, "scale": 1.0, name: 0})


def stretched(table, length, align):
    """Linear interpolation, written out for each row."""
    rows, n = [], len(table)
    for i in range(length):
        if align == "ends":
            place = i * (n - 1) / (length - 1) if length > 1 else 0.0
        else:
            place = min(max((i + 0.5) * n / length - 0.5, 0.0), n - 1)
        j = min(int(place), n - 2) if n > 1 else 0
        t = place - j
        rows.append([(1 - t) * a + t * b for a, b in zip(table[j], table[min(j + 1, n - 1)], strict=True)])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("align", ["centres", "ends"])
@pytest.mark.parametrize("length", [1, 2, 5, 8, 14, 63])
def test_a_table_is_resized_by_linear_interpolation(length, align):
    scheme = Learned(width=3, max_length=7).double()
    other = scheme.resized(length, align=align)
    exact = stretched(scheme.table.tolist(), length, align)
    assert torch.allclose(other.table, exact, rtol=0, atol=1e-15)
    assert other.max_length == length
    where = Geometry.causal(length)
    assert other.at(where).embed(torch.zeros(1, length, 3, dtype=torch.float64))[0].equal(other.table)


def test_ends_keep_the_first_and_the_last_vector():
    scheme = Learned(width=3, max_length=7)
    table = scheme.resized(40, align="ends").table
    assert table[0].equal(scheme.table[0])
    assert table[-1].equal(scheme.table[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_table_of_the_same_length_is_the_same_bit_by_bit_and_a_parameter_of_its_own(dtype):
    scheme = Learned(width=3, max_length=7).to(dtype)
    other = scheme.resized(7)
    assert other.table.equal(scheme.table)
    assert other.table.dtype == dtype
    with torch.no_grad():
        other.table.add_(1)
    assert not other.table.equal(scheme.table)


def test_a_resized_table_trains_by_itself_and_is_drawn_from_nothing():
    scheme = Learned(width=3, max_length=7).eval()
    before = torch.random.get_rng_state()
    other = scheme.resized(9)
    assert torch.random.get_rng_state().equal(before)
    assert not other.training
    other.embed(torch.zeros(1, 1, 3), torch.tensor([[[8]]])).sum().backward()
    assert other.table.is_leaf
    assert other.table.grad[8].tolist() == [1, 1, 1]
    assert scheme.table.grad is None
    scheme.table.requires_grad_(False)
    assert not scheme.resized(9).table.requires_grad


def test_a_resized_table_supports_exactly_its_new_length():
    other = Learned(width=3, max_length=7).resized(9)
    with pytest.raises(ValueError, match=r"Learned serves positions 0 to 8 \(max_length 9\); got 9 to 9"):
        other.at(Geometry.from_positions(torch.tensor([[[9]]])))


@pytest.mark.usefixtures("untyped")
def test_resizing_to_nothing_or_in_an_unknown_way_is_refused():
    with pytest.raises(ValueError, match="max_length must be above zero; got 0"):
        Learned(width=3, max_length=7).resized(0)
    with pytest.raises(ValueError, match="no option align is named 'end'; there are: centres, ends"):
        Learned(width=3, max_length=7).resized(9, align="end")


def test_it_agrees_with_an_embedding_table_of_pytorch():
    scheme = Learned(width=5, max_length=7)
    x = torch.randn(2, 4, 5)
    theirs = torch.nn.functional.embedding(POSITIONS[..., 0], scheme.table) + x
    assert scheme.embed(x, POSITIONS).equal(theirs)
