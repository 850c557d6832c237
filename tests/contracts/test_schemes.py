import os
import subprocess
import sys

import pytest

from ordinate.core import catalog
from ordinate.schemes._scheme import Scheme
from ordinate.testing import check_scheme

NAMES = catalog.names("ordinate.schemes")
# one for each hook and for each way to hold positions; the others are in the extended tier
MECHANISMS = ("rope", "shaw")
# one of each kind: on tokens, queries and keys, a table, slopes, a curve, contents, vectors, values, several axes
COMPILED = ("alibi", "axial", "cope", "fire", "learned", "rope", "shaw", "t5")
OTHERS = [name for name in NAMES if name not in COMPILED]
PROGRAM = """
import runpy, sys
from ordinate.core import catalog
from ordinate.core.devices import as_if_on
from ordinate.schemes._scheme import Scheme
from ordinate.testing import Check, run_check
from ordinate.testing.case import SchemeCase
from ordinate.testing.schemes.compiling import the_compiled_scheme_equals_the_eager_one as promise

with as_if_on(sys.argv[2]):
    for name in sys.argv[3:]:
        came = run_check(Check(name, promise), SchemeCase(catalog.load("ordinate.schemes", Scheme, name)))
        assert came.passed, came
mutant = runpy.run_path(sys.argv[1])["DataDependentBranch"]
came = run_check(Check("mutant", promise), SchemeCase(mutant))
assert came.skipped_reason is None and not came.passed and "data-dependent" in came.message, came
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in MECHANISMS else pytest.mark.extended) for name in NAMES]
)
def test_a_scheme_keeps_every_promise(name):
    outcomes = check_scheme(catalog.load("ordinate.schemes", Scheme, name))
    broken = {came.name: came.message for came in outcomes if not came.passed and came.skipped_reason is None}
    assert not broken
    assert sum(came.passed for came in outcomes) > 20


def compile_without_types(*names, kind="cpu"):
    """Compile these schemes as on a kind of device, and a mutant that cannot be, in a process without type checks."""
    # the conftest has types checked, which torch.compile cannot trace
    mutants = os.path.join(os.path.dirname(__file__), "mutants", "numbers.py")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, mutants, kind, *names]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "names", [pytest.param(COMPILED, marks=pytest.mark.extended), pytest.param(OTHERS, marks=pytest.mark.long)]
)
def test_every_scheme_compiles(names, kind):
    compile_without_types(*names, kind=kind)


def test_a_bias_compiles_for_a_gpu_where_every_size_is_a_symbol():
    # which backend is proved there is asked for while its sizes are traced
    compile_without_types("kerple", kind="cuda")
