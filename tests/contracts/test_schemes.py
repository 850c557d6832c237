import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from ordinate import catalog
from ordinate.scheme import Scheme
from ordinate.testing import InapplicableError, scheme_checks
from ordinate.testing.case import Case

NAMES = catalog.names("ordinate.schemes")
CHECKS = {check.name: check for check in scheme_checks()}

COMPILE = """
from ordinate import catalog
from ordinate.scheme import Scheme
from ordinate.testing.case import Case
from ordinate.testing.schemes.compiling import the_compiled_scheme_equals_the_plain_one
for name in catalog.names("ordinate.schemes"):
    the_compiled_scheme_equals_the_plain_one(Case(catalog.load("ordinate.schemes", Scheme, name)))
    print(name)
"""


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_scheme(name, check):
    case = Case(catalog.load("ordinate.schemes", Scheme, name))
    try:
        CHECKS[check].run(case)
    except InapplicableError as reason:
        pytest.skip(str(reason))


def test_every_scheme_compiles_where_types_are_not_checked_at_run_time():
    if not any(type(finder).__module__.startswith("jaxtyping") for finder in sys.meta_path):
        pytest.skip("test_scheme has compiled them here")
    source = os.path.dirname(find_spec("ordinate").submodule_search_locations[0])
    environment = {**os.environ, "PYTHONPATH": source}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == NAMES
