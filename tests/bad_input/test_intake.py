"""Wrong input of every gate gives a clear error or a right result: drawn at each gate."""

import tempfile
from pathlib import Path
from random import Random

import pytest

from tests.bad_input.intake import GATES, outcome

pytestmark = pytest.mark.usefixtures("untyped")
# the same inputs each time; hypothesis would take numbers from the modules that happen to be imported
FEW, MANY = range(4), range(4, 154)


def try_one(name, seed):
    """Read the input of a seed, which is all that it depends on."""
    with tempfile.TemporaryDirectory() as folder:
        attempt = GATES[name][0](Random(seed), Path(folder))
        kind, said = outcome.judge(attempt)
    assert kind in outcome.GOOD, f"{attempt.what} (seed {seed}): {kind}: {said}"


SLOW = ("config.json, compared with transformers", "config.json of every family")
CASES = [pytest.param(name, marks=[pytest.mark.extended] if name in SLOW else []) for name in GATES]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_wrong_input_gives_a_clear_error_or_a_right_result(name):
    for seed in FEW:
        try_one(name, seed)


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GATES)
def test_much_wrong_input_gives_clear_errors_or_right_results(name):
    for seed in MANY:
        try_one(name, seed)


def test_each_kind_of_outcome_is_recognised():
    def judged(ask):
        return outcome.judge(outcome.Attempt("x", ("file",), ask))[0]

    def never():
        while True:
            pass

    def fail(error):
        raise error

    assert judged(lambda: [1.0]) == "right"
    assert judged(lambda: [float("nan")]) == "NaN"
    assert judged(lambda: fail(KeyError("file"))) == "obscure"
    assert judged(lambda: fail(outcome.Wrong())) == "silently wrong"
    assert judged(lambda: fail(outcome.Refused("the file must be one; it is none; give another"))) == "clear"
    assert judged(lambda: fail(outcome.Refused("the text must be one; it is none; give another"))) == "obscure"
    assert judged(lambda: fail(outcome.Refused("the file is bad"))) == "obscure"
    assert judged(lambda: bytearray(1 << 40)) == "hanging"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outcome, "SECONDS", 1)
        assert judged(never) == "hanging"
