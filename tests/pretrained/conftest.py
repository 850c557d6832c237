"""How far published models are from ours, kept for the table of docs/published.md.

`python .ci/families.py` runs these tests with `--families FILE`, which writes what they measure there.
"""

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate.pretrained.weights import family_of

MEASURED = pytest.StashKey[dict]()
# a column of the table, and the words in the names of tests that fill it
COLUMNS = {
    "padded": ("padded",),
    "cached": ("from_a_cache",),
    "bfloat16": ("16_bit",),
    "round trip": ("there_and_back",),
    "forward": ("are_those_of_transformers",),
}


def pytest_addoption(parser):
    parser.addoption("--families", type=Path, help="write how far families are from ours to this file")


def pytest_configure(config):
    config.stash[MEASURED] = {}


def pytest_sessionfinish(session, exitstatus):
    file = session.config.getoption("families", default=None)
    if file is not None and exitstatus == 0:
        rows = {name: dict(sorted(row.items())) for name, row in sorted(session.config.stash[MEASURED].items())}
        found = {"torch": torch.__version__, "transformers": transformers_version(), "families": rows}
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def transformers_version():
    import transformers

    return transformers.__version__


def column(test):
    """The column that a test fills; None: it compares with nothing."""
    return next((name for name, words in COLUMNS.items() if any(word in test for word in words)), None)


@pytest.fixture(autouse=True)
def measured(request, monkeypatch):
    """Keep the largest difference that a test of a family meets, as a share of the largest number."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    into = column(request.node.originalname)
    if not isinstance(name, str) or into is None:
        yield
        return
    worst = [0.0]

    def recording(check):
        def checked(out, expected, *others):
            check(out, expected, *others)
            exact = others[0] if check.__name__ == "no_worse" else expected
            worst.append(((out.float() - exact.float()).abs().max() / exact.abs().max()).item())

        return checked

    for check in ("near", "no_worse"):
        if hasattr(request.module, check):
            monkeypatch.setattr(request.module, check, recording(getattr(request.module, check)))
    yield
    request.config.stash[MEASURED].setdefault(name, {})[into] = max(worst)


@pytest.fixture
def made(tmp_path):
    """A checkpoint of a family, whose config.json and tensors are changed after it was written."""
    transformers = pytest.importorskip("transformers")
    sizes_of = runpy.run_path(str(Path(__file__).with_name("fields.py")))["FIELDS"]

    def make(family, head="", config=None, tensors=None, **sizes):
        kind = transformers.CONFIG_MAPPING[family_of(family).model_type]
        transformers.set_seed(0)
        auto = getattr(transformers, f"AutoModel{head}")
        known = sizes_of[family][0]
        model = auto.from_config(kind.from_dict({**known, **sizes})).eval()
        for parameter in model.parameters():
            # sinusoids are fixed
            if parameter.requires_grad:
                parameter.data.add_(0.2 * torch.randn_like(parameter))
        for name, buffer in (*model.named_buffers(), *model.named_parameters()):
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.data.normal_(std=0.2)
        model.save_pretrained(tmp_path)
        said = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(said | (config or {})))
        if tensors is not None:
            kept = load_file(tmp_path / "model.safetensors")
            save_file(kept | tensors(kept), tmp_path / "model.safetensors", metadata={"format": "pt"})
        return tmp_path

    return make
