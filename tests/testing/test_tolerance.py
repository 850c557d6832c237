import pytest
import torch

from ordinate.testing import assert_as_close

EXACT = torch.linspace(-3, 3, 7, dtype=torch.float64)


def test_what_is_as_good_as_the_plain_formula_passes():
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert_as_close(EXACT.to(dtype), EXACT.to(dtype), EXACT)


def test_what_is_much_worse_than_the_plain_formula_fails():
    with pytest.raises(AssertionError, match=r"scores: off by 0.001, allowed .* \(torch.float32\)"):
        assert_as_close((EXACT + 1e-3).float(), EXACT.float(), EXACT, what="scores")


def test_float64_is_held_to_a_million_millionth():
    assert_as_close(EXACT + 1e-12, EXACT, EXACT)
    with pytest.raises(AssertionError, match="off by 1e-11"):
        assert_as_close(EXACT + 1e-11, EXACT, EXACT)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_must_stand_on_both_sides(number):
    broken = EXACT.clone()
    broken[2] = number
    assert_as_close(broken, broken, broken)
    for out, exact in ((broken, EXACT), (EXACT, broken)):
        with pytest.raises(AssertionError, match="non-finite values at other indices"):
            assert_as_close(out, exact, exact)


def test_shape_and_type_must_agree():
    with pytest.raises(AssertionError, match=r"shape \(6,\), expected \(7,\)"):
        assert_as_close(EXACT[1:], EXACT, EXACT)
    with pytest.raises(AssertionError, match=r"type torch.float32, expected torch.float64"):
        assert_as_close(EXACT.float(), EXACT, EXACT)
