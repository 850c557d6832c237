"""How far published models are from ours, kept for the table of docs/published.md.

`python .ci/families.py` runs these tests with `--families FILE`, which writes what they measure there.
"""

import json
from pathlib import Path

import pytest
import torch

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
