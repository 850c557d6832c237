"""The contract suites, shipped so that anyone can check members of their own."""

from ordinate.testing.check import Check, InapplicableError, Outcome, outcome
from ordinate.testing.mixer import check_mixer, mixer_checks
from ordinate.testing.scheme import check_scheme, scheme_checks
from ordinate.testing.tolerance import assert_as_close

__all__ = [
    "Check",
    "InapplicableError",
    "Outcome",
    "assert_as_close",
    "check_mixer",
    "check_scheme",
    "mixer_checks",
    "outcome",
    "scheme_checks",
]
