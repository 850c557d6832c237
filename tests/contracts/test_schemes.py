import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordinate import catalog
from ordinate.scheme import Scheme
from ordinate.testing import InapplicableError, scheme_checks
from ordinate.testing.case import Case

NAMES = catalog.names("ordinate.schemes")
CHECKS = {check.name: check for check in scheme_checks()}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_scheme(name, check):
    case = Case(catalog.load("ordinate.schemes", Scheme, name))
    try:
        CHECKS[check].run(case)
    except InapplicableError as reason:
        pytest.skip(str(reason))


def compiled_without_types(*names):
    """What a run of the checks that compile said, of these schemes or of all."""
    # it is the conftest that has types checked
    chosen = "the_compiled" + (f" and ({' or '.join(names)})" if names else "")
    options = ["--noconftest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    command = [sys.executable, "-m", "pytest", *options, str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stdout
    return run.stdout


def test_a_scheme_of_each_kind_compiles_where_types_are_not_checked_at_run_time():
    if not any(type(finder).__module__.startswith("jaxtyping") for finder in sys.meta_path):
        pytest.skip("test_scheme has compiled them here")
    said = compiled_without_types("sinusoidal", "rope", "kerple", "transformer_xl")
    assert "4 passed" in said
    assert "skipped" not in said


@pytest.mark.slow
def test_every_scheme_compiles_where_types_are_not_checked_at_run_time():
    said = compiled_without_types()
    # every scheme, and the mutant
    assert f"{len(NAMES) + 1} passed" in said
    assert "skipped" not in said
