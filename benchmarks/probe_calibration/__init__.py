"""Calibration of the probes by simulation: coverage of 95 % intervals, and false positives, where the truth is known.

Each file of this package has the cells of one probe, `CELLS`. Run those of some probes only by
`python -m benchmarks.probe_calibration [--save] [--quick] [--draws 200] [PROBE ...]`.
"""

import hashlib
import importlib
import inspect
import pkgutil
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.harness.saving import Unfinished, save
from benchmarks.probe_calibration._cell import Cell, measured

# with --quick, one draw in so many
QUICK = 20


def probes() -> list[str]:
    """Names of the probes that have cells."""
    return sorted(one.name for one in pkgutil.iter_modules(__path__) if not one.name.startswith("_"))


def main(save_it: bool, quick: bool = False, names: Sequence[str] = (), most: int | None = None) -> None:
    """Simulate the cells of the named probes, or of all, print each row, and save a result for each probe.

    Args:
        save_it: whether to save.
        quick: draw a twentieth.
        names: the probes; none: all.
        most: draws of a cell, at most.
    """
    torch.set_num_threads(1)
    for name in names or probes():
        module = importlib.import_module(f"{__name__}.{name}")
        cells: Sequence[Cell] = module.CELLS
        title = f"probe_calibration-{name}"
        kept, rows = Unfinished(f"{title}-quick" if quick else title), list[dict[str, Any]]()
        for cell in cells:
            draws = min(cell.draws // (QUICK if quick else 1), most or cell.draws)
            began = time.perf_counter()
            # an unfinished run is resumed only with the same cells
            part = (cell.model, draws, hashlib.sha256(inspect.getsource(module).encode()).hexdigest())
            found = kept.get(*part)
            if found is None:
                found = measured(cell, draws)
                kept.put(*part, rows=found)
            print(f"\n{name}: {cell.model} ({time.perf_counter() - began:.0f} s)")
            for row in found:
                print(described(row), flush=True)
            rows += found
        if save_it:
            print(save(title, {"cells": rows}))
            kept.forget()


def described(row: dict[str, Any]) -> str:
    """Format a row; a star marks what is outside the accepted range."""
    share = f"{100 * row['share']:5.1f} % [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"
    return f"  {share:22}{' ' if row['accepted'] else '*'} {row['kind']}, {row['what']} ({row['draws']} draws)"
