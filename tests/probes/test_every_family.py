"""Every question of every family: measured, or skipped with the reason."""

import runpy
from pathlib import Path

import pytest
import torch

from ordinate import catalog
from ordinate.attachment import attach
from ordinate.finding import Finding
from ordinate.lab.conduct import PACKAGE, Question, answer
from ordinate.probe import Material

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).parents[1] / "subjects" / "families.py"))
OF_TEXTS = {"closeness", "extrapolation", "secrecy"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES["ALL"])
def test_every_question_of_every_family_is_answered(name):
    images, one = name in FAMILIES["IMAGES"], attach(FAMILIES["make"](name).float(), name=name)
    draw = torch.Generator().manual_seed(0)
    if images:
        material = Material(None, torch.randn(16, 3, 16, 16, generator=draw), "noise")
    else:
        material = Material(torch.randint(4, 60, (16, 24), generator=draw), None, "random tokens", natural=False)
    for question in catalog.names(PACKAGE):
        found = answer(Question(question, {}), one, material, 0, lambda done: None)
        assert found.status == ("skipped" if images and question in OF_TEXTS else "measured"), found.answer
        assert Finding.model_validate_json(found.model_dump_json()) == found
