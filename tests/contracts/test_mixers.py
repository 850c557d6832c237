import pytest

from ordinate import catalog
from ordinate.mixer import Mixer
from ordinate.testing import InapplicableError, mixer_checks
from ordinate.testing.mixer import MixerCase

NAMES = catalog.names("ordinate.mixers")
# at which a short text shows what they do
OPTIONS = {"window": {"window": 5}, "longformer": {"window": 5, "global_tokens": 2}}
CHECKS = {check.name: check for check in mixer_checks()}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_mixer(name, check):
    case = MixerCase(catalog.load("ordinate.mixers", Mixer, name), OPTIONS.get(name, {}))
    try:
        CHECKS[check].run(case)
    except InapplicableError as reason:
        pytest.skip(str(reason))
