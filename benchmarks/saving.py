"""Results of benchmarks, dated, with the machine they were measured on."""

import json
import platform
from datetime import date
from pathlib import Path
from typing import Any

import torch

from ordinate.study.folder import machine

RESULTS = Path(__file__).parent / "results"


def save(name: str, results: dict[str, Any]) -> Path:
    """Write results/NAME_MACHINE_DATE.json."""
    here = machine()
    path = RESULTS / f"{name}_{platform.machine()}-{here['cores']}-cores_{date.today()}.json"
    RESULTS.mkdir(exist_ok=True)
    about = {"machine": here, "torch": torch.__version__, "results": results}
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return path
