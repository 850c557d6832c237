import pytest
import torch

from ordinate import Geometry, Learned

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


def test_the_vectors_are_born_with_the_scale_given():
    assert abs(Learned(width=100, max_length=100, scale=0.5).table.std().item() - 0.5) < 0.02


@pytest.mark.parametrize(("pos", "came"), [(7, "got 7 to 7"), (-1, "got -1 to -1")])
def test_a_position_beyond_the_table_is_refused_and_never_clamped(pos, came):
    scheme, where = Learned(width=4, max_length=7), Geometry.given(torch.tensor([[[pos]]]))
    for ask in (lambda: scheme.at(where), lambda: scheme.embed(torch.zeros(1, 1, 4), where.q_pos)):
        with pytest.raises(ValueError, match=rf"Learned serves positions 0 to 6 \(max_length 7\); {came}"):
            ask()


def test_the_remedy_names_the_length_that_would_do():
    with pytest.raises(ValueError, match="build it with max_length=100 or more, or shorten the input"):
        Learned(width=4, max_length=7).at(Geometry.causal(100))


def test_fractional_positions_are_refused():
    with pytest.raises(ValueError, match=r"Learned takes whole positions; got torch.float64; round them"):
        Learned(width=4, max_length=7).at(Geometry.given(torch.tensor([[[0.5]]], dtype=torch.float64)))


@pytest.mark.parametrize("name", ["width", "max_length", "scale"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Learned(**{"width": 4, "max_length": 7, "scale": 1.0, name: 0})


def test_it_agrees_with_an_embedding_table_of_pytorch():
    scheme = Learned(width=5, max_length=7)
    x = torch.randn(2, 4, 5)
    theirs = torch.nn.functional.embedding(POSITIONS[..., 0], scheme.table) + x
    assert scheme.embed(x, POSITIONS).equal(theirs)
