"""Results of benchmarks, dated, with the machine they were measured on."""

import json
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

from ordinate.study.about import code_digest, machine

RESULTS = Path(__file__).parent / "results"


def save(name: str, results: dict[str, Any]) -> Path:
    """Write results/NAME_MACHINE_DATE.json."""
    here = machine()
    path = RESULTS / f"{name}_{platform.machine()}-{here['cores']}-cores_{date.today()}.json"
    RESULTS.mkdir(exist_ok=True)
    about = {"machine": here, "torch": torch.__version__, "results": results}
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return path


class Unfinished:
    """What a long benchmark has measured so far, in a file, until all of it is saved.

    What another machine, PyTorch or version of the code has measured is not taken.

    Args:
        name: of the benchmark.
    """

    def __init__(self, name: str) -> None:
        self.path = RESULTS / f"{name}.unfinished"
        self.about = {"machine": machine(), "torch": torch.__version__, "code": code_digest()}
        self.rows: dict[str, Any] = {}
        if self.path.is_file():
            found = json.loads(self.path.read_text(encoding="utf-8"))
            self.rows = found["rows"] if found["about"] == self.about else {}
        if self.rows:
            print(f"going on after {len(self.rows)} parts that {self.path} has")

    def get(self, *part: object) -> Any:
        """What was measured of a part; None: nothing yet."""
        return self.rows.get(str(part))

    def put(self, *part: object, rows: Any) -> None:
        """Keep what was measured of a part."""
        self.rows[str(part)] = rows
        RESULTS.mkdir(exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({"about": self.about, "rows": self.rows}), encoding="utf-8")
        # in one step: what is killed meanwhile leaves a whole file
        beside.replace(self.path)

    def forget(self) -> None:
        """All of it is saved elsewhere."""
        self.path.unlink(missing_ok=True)
