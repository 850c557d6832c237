import pytest
import torch

from ordinate.replications.papers.li import LENGTH, Li, curve, interpolating, relative_difference, represent
from ordinate.replications.runner import replicate
from ordinate.schemes import T5, Alibi, Kerple


def test_a_constructed_bias_goes_through_its_points_and_is_linear_between_them_in_the_logarithm():
    seen = curve(interpolating({0: 1.0, 9: -2.0, LENGTH - 1: 3.0}, c=0.5))
    torch.testing.assert_close(
        seen[[0, 9, -1]], torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64), rtol=0, atol=1e-9
    )
    share = torch.log1p(torch.tensor(0.5 * 4)) / torch.log1p(torch.tensor(0.5 * 9))
    assert abs(float(seen[4]) - (1 - 3 * float(share))) < 1e-5


@pytest.mark.parametrize("scheme", [Alibi(heads=1), T5(heads=1, buckets=8, max_distance=20), Kerple(heads=1)])
def test_a_represented_bias_is_the_same_and_one_of_other_values_is_not(scheme):
    own, other = curve(represent(scheme)), curve(scheme)
    assert relative_difference(own, other) < 1e-12
    assert relative_difference(own.roll(1), other) > 1e-3


def test_the_difference_is_relative_to_the_largest_expected_value():
    assert relative_difference(torch.tensor([1.0, 2.0]), torch.tensor([0.0, -4.0])) == 1.5


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("li", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Li.claims]
    assert all(control.recovered for control in result.controls)
    assert "24 models" in result.trained
