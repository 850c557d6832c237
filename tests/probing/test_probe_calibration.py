import importlib
from pathlib import Path

import pytest

from ordinate.core.finding import Estimate

ROOT = Path(__file__).parents[2]
PROBES = sorted(path.stem for path in (ROOT / "benchmarks" / "probe_calibration").glob("[!_]*.py"))


@pytest.fixture
def contract(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.probe_calibration._cell")


def test_coverage_and_false_positives_are_counted(contract):
    def draw(seed):
        found = Estimate(name="e", value=0.5, low=0.0 if seed % 10 else 0.6, high=1.0)
        readings = {"e": contract.Reading.of(found, 0.5), "own": contract.Reading(seed, 0, 100)}
        return contract.Outcome(readings, {"f": seed < 8}, {"t": seed > 5} if seed else {})

    rows = {row["what"]: row for row in contract.measured(contract.Cell("model", draw), 40)}
    assert {name: (row["kind"], row["draws"]) for name, row in rows.items()} == {
        "e": ("coverage", 40), "own": ("coverage", 40), "f": ("false positives", 40), "t": ("detected", 39),
    }  # fmt: skip
    assert (rows["e"]["share"], rows["own"]["truth"], rows["f"]["share"]) == (0.9, 19.5, 0.2)
    # Clopper and Pearson, 36 of 40
    assert (round(rows["e"]["low"], 4), round(rows["e"]["high"], 4)) == (0.7634, 0.9721)
    assert [rows[name]["accepted"] for name in ("e", "own", "f", "t")] == [False, False, False, True]


def test_an_estimate_without_an_interval_is_no_reading(contract):
    with pytest.raises(ValueError, match="a reading needs an interval; e has none"):
        contract.Reading.of(Estimate(name="e", value=1.0))


@pytest.mark.extended
@pytest.mark.parametrize("name", PROBES)
def test_every_cell_can_be_drawn(contract, name):
    for cell in importlib.import_module(f"benchmarks.probe_calibration.{name}").CELLS:
        assert contract.measured(cell, 1)
