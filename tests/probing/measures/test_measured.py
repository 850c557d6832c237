import pytest

from ordinate.probing._adapter import NotApplicable
from ordinate.probing.measures.measured import Measured, attempt, missing_parts


def refuse():
    raise NotApplicable("it takes images")


def test_a_measurement_has_its_value_or_the_reason_why_not():
    done, refused = attempt("length", lambda: 7), attempt("order", refuse, [])
    assert (done.value, dict(done.missing)) == (7, {})
    assert (refused.value, dict(refused.missing)) == ([], {"order": "it takes images"})
    assert attempt("order", refuse).value is None
    assert missing_parts(refused, done, Measured(1, {"mask": "it is windowed"})) == {
        "order": "it takes images",
        "mask": "it is windowed",
    }
    assert list(missing_parts(refused, Measured(1, {"mask": "no"}))) == ["order", "mask"]


def test_only_what_does_not_apply_is_a_reason():
    with pytest.raises(ZeroDivisionError):
        attempt("ratio", lambda: 1 / 0)
