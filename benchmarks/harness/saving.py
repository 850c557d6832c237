"""Write results of benchmarks with the machine and the date, and resume unfinished ones."""

import json
import os
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.device import Device
from ordinate.core.atomic_files import write_text
from ordinate.study.manifest import code_digest, machine

RESULTS = Path(__file__).parents[1] / "results"
# another folder for results of devices
RESULTS_VARIABLE = "ORDINATE_BENCH_RESULTS"


def save_on(device: Device, name: str, results: dict[str, Any]) -> Path:
    """Write NAME-KIND_DEVICE_DATE.json to results/, or to the folder in ORDINATE_BENCH_RESULTS.

    The kind is `cuda` or `rehearsal`, so that the result is never mistaken for that of a CPU.
    """
    folder = Path(os.environ.get(RESULTS_VARIABLE) or RESULTS)
    kind = torch.device(device.name).type if device.is_gpu else "rehearsal"
    path = folder / f"{name}-{kind}_{device.title}_{date.today()}.json"
    folder.mkdir(parents=True, exist_ok=True)
    about = {"machine": machine(), "device": device.title, "torch": torch.__version__, "cuda": torch.version.cuda}
    about |= {"code": code_digest(), "results": results}
    # a machine that is taken back here leaves a complete file
    write_text(path, json.dumps(about, indent=1) + "\n")
    return path


def save(name: str, results: dict[str, Any]) -> Path:
    """Write results/NAME_MACHINE_DATE.json."""
    here = machine()
    path = RESULTS / f"{name}_{platform.machine()}-{here['cores']}-cores_{date.today()}.json"
    RESULTS.mkdir(exist_ok=True)
    instructions = torch.backends.cpu.get_cpu_capability()
    about = {"machine": here, "instructions": instructions, "torch": torch.__version__, "results": results}
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return path


class Unfinished:
    """Partial results of a long benchmark in a file, so that an interrupted run can resume.

    Results of another machine, PyTorch or version of the code are discarded.

    Args:
        name: name of the benchmark.
    """

    def __init__(self, name: str) -> None:
        self.path = RESULTS / f"{name}.unfinished"
        self.about = {"machine": machine(), "torch": torch.__version__, "code": code_digest()}
        self.rows: dict[str, Any] = {}
        if self.path.is_file():
            found = json.loads(self.path.read_text(encoding="utf-8"))
            self.rows = found["rows"] if found["about"] == self.about else {}
        if self.rows:
            print(f"resuming after {len(self.rows)} parts in {self.path}")

    def get(self, *part: object) -> Any:
        """Return the results of a part; None: not measured yet."""
        return self.rows.get(str(part))

    def put(self, *part: object, rows: Any) -> None:
        """Store the results of a part."""
        self.rows[str(part)] = rows
        RESULTS.mkdir(exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({"about": self.about, "rows": self.rows}), encoding="utf-8")
        # an atomic rename: a process that is killed here leaves a complete file
        beside.replace(self.path)

    def forget(self) -> None:
        """Delete the file, once the whole result is saved."""
        self.path.unlink(missing_ok=True)
