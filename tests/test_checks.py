import math

import pytest

from ordinate.checks import need, need_fraction, need_known, need_positive


def test_a_condition_that_holds_raises_nothing():
    need(True, "must", "came", "remedy")


def test_an_error_says_what_must_hold_what_came_and_what_to_do():
    with pytest.raises(ValueError, match=r"^sugar must be sweet; got salt; taste it first$"):
        need(False, "sugar must be sweet", "got salt", "taste it first")


@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan])
def test_what_is_not_above_zero_is_refused(value):
    with pytest.raises(ValueError, match=r"width must be above zero; got .*; give a positive width"):
        need_positive("width", value)


@pytest.mark.parametrize("value", [-0.1, 1, 2, math.nan])
def test_what_is_no_share_is_refused(value):
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\)"):
        need_fraction("dropout", value)


@pytest.mark.parametrize("value", [0, 0.5, 0.999])
def test_a_share_is_taken(value):
    need_fraction("dropout", value)


def test_an_unknown_name_is_answered_by_the_nearest():
    with pytest.raises(ValueError, match=r"no scheme is named 'ropee'; there are: alibi, rope; did you mean 'rope'?"):
        need_known("scheme", "ropee", ["rope", "alibi"])


def test_a_name_like_no_other_is_answered_by_the_list():
    with pytest.raises(ValueError, match=r"there are: alibi, rope; choose one of them"):
        need_known("scheme", "zzz", ["rope", "alibi"])


def test_an_empty_list_is_named_so():
    with pytest.raises(ValueError, match=r"there are: none at all"):
        need_known("scheme", "rope", [])
