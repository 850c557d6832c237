import pytest

from ordinate.core import catalog
from ordinate.mixers._mixer import Mixer
from ordinate.testing import check_mixer

NAMES = catalog.names("ordinate.mixers")
# at which a short text shows what they do
OPTIONS = {"window": {"window": 5}, "longformer": {"window": 5, "global_tokens": 2}}
# one for each way to mix tokens; the others are in the extended tier
MECHANISMS = ("softmax", "s4d")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in MECHANISMS else pytest.mark.extended) for name in NAMES]
)
def test_a_mixer_keeps_every_promise(name):
    outcomes = check_mixer(catalog.load("ordinate.mixers", Mixer, name), **OPTIONS.get(name, {}))
    broken = {came.name: came.message for came in outcomes if not came.passed and came.skipped_reason is None}
    assert not broken
    assert sum(came.passed for came in outcomes) > 15
