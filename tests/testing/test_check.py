import sys

from ordinate.testing import Check, InapplicableError, Outcome, run_check


def test_a_check_that_returns_has_passed():
    assert run_check(Check("all_is_well", lambda subject: None), 1) == Outcome("all_is_well", True)


def test_a_failed_assertion_is_reported():
    def run(subject):
        raise AssertionError(f"it is {subject}")

    assert run_check(Check("it_is_two", run), 1) == Outcome("it_is_two", False, message="AssertionError: it is 1")


def test_any_other_error_is_a_broken_promise_too():
    came = run_check(Check("it_divides", lambda subject: 1 / subject), 0)
    assert came == Outcome("it_divides", False, message="ZeroDivisionError: division by zero")


def test_a_subject_that_exits_fails_the_check_and_does_not_end_the_suite():
    came = run_check(Check("it_stays", lambda subject: sys.exit(0)), 0)
    assert came == Outcome("it_stays", False, message="SystemExit: 0")


def test_a_check_that_does_not_apply_has_neither_passed_nor_failed():
    def run(subject):
        raise InapplicableError("it has no wheels")

    assert run_check(Check("it_rolls", run), 1) == Outcome("it_rolls", False, skipped_reason="it has no wheels")


def test_the_suite_and_show_offer_the_sizes_that_models_do():
    from ordinate.models.shape import Shape
    from ordinate.schemes import _plots
    from ordinate.testing.case import SIZES

    assert set(SIZES) == set(_plots.PLOT_SIZES) == set(Shape(vocabulary=2).bindable_sizes)
