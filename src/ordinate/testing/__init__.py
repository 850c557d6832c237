"""Contract test suites for schemes and mixers, including those defined outside Ordinate."""

from ordinate.testing.check import Check, InapplicableError, Outcome, run_check
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
    "run_check",
    "scheme_checks",
]
