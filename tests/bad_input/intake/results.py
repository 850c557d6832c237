"""Gate of results: the files of a study, damaged or written by somebody else."""

import json
import random
import shutil
from pathlib import Path

from ordinate.core.atomic_files import write_checksummed
from ordinate.report.decision import decide
from ordinate.report.read import load_study
from ordinate.report.summary import summarise
from tests.bad_input.intake import mutation
from tests.bad_input.intake.outcome import Attempt, Wrong

STUDY = Path(__file__).parents[3] / "studies" / "quick"
RUNS = ("alibi-s0", "rope-s0")


def study(draw: random.Random, folder: Path) -> Attempt:
    """A study of which one file is damaged, or has a changed part under a right checksum."""
    root = folder / "study"
    for name in RUNS:
        shutil.copytree(STUDY / "runs" / name, root / "runs" / name)
    shutil.copy(STUDY / "study.json", root / "study.json")
    path = draw.choice([root / "study.json", *(root / "runs" / name / "result.json" for name in RUNS)])
    sound = path.read_bytes()
    if draw.random() < 0.4:
        raw, how = mutation.mutated_bytes(sound, draw)
        path.write_bytes(raw)
        names, damaged = (path.name,), raw != sound
    else:
        value, how, names = _changed(json.loads(sound), draw)
        try:
            write_checksummed(path, value)
        except (ValueError, UnicodeEncodeError, RecursionError):
            # what JSON cannot hold is no file
            path.write_bytes(sound)
        damaged = False

    def ask() -> list[float]:
        found = load_study(root)
        if damaged and not found.damaged:
            raise Wrong("a damaged file is taken as it is")
        entries = summarise(found)
        decide(found, entries)
        return [level.value for entry in entries for level in entry.levels.values()]

    return Attempt(f"{path.relative_to(root)}: {how}", (path.name, *names, "study.json", "plan"), ask)


def _changed(value: dict, draw: random.Random) -> tuple[dict, str, tuple[str, ...]]:
    del value["checksum"]
    return mutation.mutated_json(value, draw)
