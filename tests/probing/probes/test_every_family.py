"""Every question of every family: measured, or skipped with the reason."""

import runpy
from pathlib import Path

import pytest
import torch

from ordinate.core import catalog
from ordinate.core.finding import Finding
from ordinate.core.progress import ignore
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.runner.probe_runner import PACKAGE, ProbeSpec, run_probe

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).parents[1] / "adapters" / "families.py"))
OF_TEXTS = {"position_similarity", "extrapolation", "privacy"}


@pytest.mark.extended
@pytest.mark.parametrize("name", FAMILIES["ALL"])
def test_every_probe_runs_on_every_family(name):
    images, one = name in FAMILIES["IMAGES"], attach(FAMILIES["make"](name).float(), name=name)
    draw = torch.Generator().manual_seed(0)
    if images:
        material = ProbeData(None, torch.randn(16, 3, 16, 16, generator=draw), "noise")
    else:
        material = ProbeData(torch.randint(4, 60, (16, 24), generator=draw), None, "random tokens", natural=False)
    for question in catalog.names(PACKAGE):
        found = run_probe(ProbeSpec(question, {}), one, material, 0, ignore)
        assert found.status == ("skipped" if images and question in OF_TEXTS else "measured"), found.answer
        assert Finding.model_validate_json(found.model_dump_json()) == found
