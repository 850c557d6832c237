"""The table of published models shows what was measured, of every family that there is."""

import json
import runpy
from pathlib import Path

import pytest

from ordinate.core import catalog

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tests" / "pretrained" / "results.json"
script = runpy.run_path(str(ROOT / ".ci" / "families.py"))


def test_every_family_has_been_measured():
    measured = {name.split(",")[0] for name in json.loads(RESULTS.read_text(encoding="utf-8"))["families"]}
    assert measured == set(catalog.names("ordinate.pretrained.families")), "run python .ci/families.py"


@pytest.mark.parametrize(
    ("number", "shown"), [(0.0, "0"), (2.5e-7, "3e-7"), (1.01e-7, "2e-7"), (9.6e-8, "1e-7"), (9.6e-3, "1e-2")]
)
def test_a_difference_is_rounded_up(number, shown):
    assert script["cell"]({"forward": number}, "forward") == shown
    assert script["cell"]({}, "forward") == "–"
    assert script["cell"]({"round trip": number}, "round trip") == "same bits"
