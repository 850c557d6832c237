import math

import pytest

from ordinate.core.checks import need, need_counts, need_fraction, need_known, need_positive, need_window


def test_a_condition_that_holds_raises_nothing():
    need(True, "must", "came", "remedy")


def test_an_error_has_requirement_value_and_remedy():
    with pytest.raises(ValueError, match=r"^sugar must be sweet; got salt; taste it first$"):
        need(False, "sugar must be sweet", "got salt", "taste it first")


@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan])
def test_numbers_not_above_zero_raise_an_error(value):
    with pytest.raises(ValueError, match=r"width must be above zero; got .*; give a positive width"):
        need_positive("width", value)


@pytest.mark.parametrize("value", [-0.1, 1, 2, math.nan])
def test_numbers_that_are_no_fraction_raise_an_error(value):
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\)"):
        need_fraction("dropout", value)


@pytest.mark.parametrize("value", [0, 0.5, 0.999])
def test_a_fraction_is_accepted(value):
    need_fraction("dropout", value)


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(ValueError, match=r"no scheme is named 'ropee'; there are: alibi, rope; did you mean 'rope'?"):
        need_known("scheme", "ropee", ["rope", "alibi"])


def test_a_name_without_close_match_lists_all():
    with pytest.raises(ValueError, match=r"there are: alibi, rope; choose one of them"):
        need_known("scheme", "zzz", ["rope", "alibi"])


def test_an_empty_list_is_reported_as_none():
    with pytest.raises(ValueError, match=r"there are: none at all"):
        need_known("scheme", "rope", [])


def test_infinity_raises_an_error():
    with pytest.raises(ValueError, match=r"theta must be finite; got inf; give a number"):
        need_positive("theta", math.inf)


@pytest.mark.parametrize("check", [need_positive, need_fraction])
@pytest.mark.parametrize("value", [None, "8", [8]])
def test_values_that_are_no_number_raise_an_error(check, value):
    with pytest.raises(TypeError, match=r"heads must be a number; got .*; give a positive heads"):
        check("heads", value)


def test_a_count_is_a_whole_number_of_zero_or_more():
    need_counts(tokens=0, cached=3)
    with pytest.raises(TypeError, match=r"tokens must be a whole number; got 2.5; give one such as 8"):
        need_counts(tokens=2.5)
    with pytest.raises(ValueError, match=r"cached must not be negative; got -1; give how many there are"):
        need_counts(tokens=1, cached=-1)


def test_a_window_is_none_or_above_zero():
    need_window(None)
    need_window(1)
    with pytest.raises(ValueError, match=r"a window holds at least the token itself; got 0; give 1 or more, or None"):
        need_window(0)


def test_an_unknown_name_need_not_be_a_text():
    with pytest.raises(ValueError, match=r"no backend is named 3; there are: reference, sdpa; choose one of them"):
        need_known("backend", 3, ["sdpa", "reference"])
