import pytest
import torch

ONE, OTHER = torch.tensor([1.0, -4.0]), torch.tensor([1.5, -4.0])
ROW = {"scheme": "rope", "oracle": pytest.raises, "what": "nothing"}


def test_a_difference_is_relative_to_the_largest_element(record):
    with pytest.raises(AssertionError, match=r"rope and _pytest.raises:raises differ by 0\.125"):
        record(OTHER, ONE, **ROW)


def test_a_tolerance_above_the_default_needs_a_reason(record):
    with pytest.raises(AssertionError, match="a tolerance above 1e-6 needs a reason"):
        record(ONE, ONE, within=0.5, **ROW)


def test_tensors_of_different_shapes_are_rejected(record):
    with pytest.raises(AssertionError, match="ours is \\(1, 2\\), theirs \\(2,\\)"):
        record(ONE[None], ONE, **ROW)


def test_non_finite_values_are_not_equal(record):
    with pytest.raises(AssertionError, match="ours is not finite"):
        record(torch.tensor([float("nan"), 0.0]), ONE, **ROW)
    with pytest.raises(AssertionError, match="differ by nan"):
        record(ONE, torch.tensor([float("nan"), 0.0]), **ROW)


def test_an_error_of_our_own_is_not_recorded(record_error):
    with pytest.raises(AssertionError, match=r"rope is off by 0\.125"):
        record_error((OTHER, ONE), (ONE, ONE), **ROW)
