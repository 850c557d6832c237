import subprocess
import sys

import pytest

from ordinate import catalog
from ordinate.scheme import Scheme
from ordinate.testing import Skipped, check_scheme, scheme_checks
from ordinate.testing.case import Case

NAMES = catalog.names("ordinate.schemes")
CHECKS = {check.name: check for check in scheme_checks()}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_scheme(name, check):
    case = Case(catalog.load("ordinate.schemes", Scheme, name))
    try:
        CHECKS[check].run(case)
    except Skipped as reason:
        pytest.skip(str(reason))
