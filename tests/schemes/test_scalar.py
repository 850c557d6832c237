import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Scalar

POSITIONS = torch.tensor([[0, 1, 2, 6], [3, 3, 0, 5]])[..., None]


def test_it_adds_the_share_of_the_way_along_one_direction():
    scheme = Scalar(width=5, max_length=8).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    expected = x.clone()
    for row in range(2):
        for token in range(4):
            for column in range(5):
                expected[row, token, column] += POSITIONS[row, token, 0].item() / 8 * scheme.direction[column].item()
    assert torch.allclose(scheme.embed(x, POSITIONS), expected, rtol=0, atol=1e-15)


def test_the_direction_gets_the_gradients_weighed_by_the_share():
    scheme = Scalar(width=5, max_length=8).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 4, 5, dtype=torch.float64)
    (scheme.embed(x, POSITIONS) * weights).sum().backward()
    expected = torch.zeros(5, dtype=torch.float64)
    for row in range(2):
        for token in range(4):
            expected += POSITIONS[row, token, 0] / 8 * weights[row, token]
    assert torch.allclose(scheme.direction.grad, expected, rtol=0, atol=1e-14)
    assert x.grad.equal(weights)


def test_fractional_positions_stand_between_whole_ones():
    scheme, x = Scalar(width=5, max_length=8).double(), torch.zeros(1, 3, 5, dtype=torch.float64)
    where = Geometry.from_positions(torch.tensor([1.0, 1.5, 2.0], dtype=torch.float64)[None, :, None])
    below, between, above = scheme.at(where).embed(x)[0]
    assert torch.allclose(between, (below + above) / 2, rtol=0, atol=1e-15)


def test_a_position_at_or_beyond_the_end_is_refused():
    with pytest.raises(ValueError, match=r"Scalar serves positions 0 to 7 \(max_length 8\); got 8 to 8"):
        Scalar(width=5, max_length=8).at(Geometry.from_positions(torch.tensor([[[8]]])))


@pytest.mark.parametrize("name", ["width", "max_length"])
def test_sizes_must_be_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        Scalar(**{"width": 4, "max_length": 7, name: 0})
