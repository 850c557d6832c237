"""Parity with public packages: measure the differences, and record them in a file.

`./dev parity --save` writes what was measured to results.json, of which the tables of docs/parity.md are made.
"""

import json
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import nn

from ordinate import Geometry, attend

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
MEASURED = pytest.StashKey[dict]()


def pytest_addoption(parser):
    parser.addoption("--save", action="store_true", help="write what the parity tests measure to results.json")


def pytest_configure(config):
    config.stash[MEASURED] = {"equal": [], "errors": []}
    if config.getoption("save", default=False) and config.getoption("numprocesses", default=None):
        raise pytest.UsageError("--save keeps what one process measures: leave -n out")


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.parity)


def pytest_sessionfinish(session, exitstatus):
    if session.config.getoption("save", default=False) and exitstatus == 0:
        tables = {
            name: sorted(rows, key=lambda row: list(words(row).values())) for name, rows in measured(session).items()
        }
        RESULTS.write_text(json.dumps({"torch": torch.__version__, **tables}, indent=1) + "\n", encoding="utf-8")


def measured(session):
    return session.config.stash[MEASURED]


def named(oracle):
    """The import path of a function or class, and its package."""
    package, version = packaged(oracle.__module__.partition(".")[0])
    return {"package": package, "oracle": f"{oracle.__module__}:{oracle.__qualname__}", "version": version}


@cache
def packaged(module):
    """The PyPI name and version of the package that installed a module."""
    package = metadata.packages_distributions()[module][0]
    return package, metadata.version(package)


def relative_difference(ours, theirs):
    """Maximum difference relative to the largest element, so that one tolerance fits all."""
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape, f"ours is {tuple(ours.shape)}, theirs {tuple(theirs.shape)}"
    assert ours.isfinite().all(), "ours is not finite"
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30)).item()


@pytest.fixture
def record(request):
    """Assert that two tensors agree, and record their difference.

    Args:
        scheme: our scheme, as it is written in a study: `rope:layout=interleaved`.
        oracle: the function, method or class that made `theirs`.
        what: what is compared.
        after: the transformation applied before comparing; empty: none.
        within: tolerance, relative to the largest element.
        because: why it is above 1e-6.
    """

    def compare(ours, theirs, *, scheme, oracle, what, after="", within=1e-6, because=""):
        assert within <= 1e-6 or because, "a tolerance above 1e-6 needs a reason: give `because`"
        difference = relative_difference(ours, theirs)
        assert difference <= within, f"{scheme} and {named(oracle)['oracle']} differ by {difference:.3g}"
        row = {"scheme": scheme, "what": what, **named(oracle), "after": after, "because": because}
        keep(request, "equal", row | {"difference": difference})

    return compare


@pytest.fixture
def record_error(request):
    """Assert that our result is right, and record the error of the other package.

    Args:
        ours: our result and the exact one.
        theirs: their result and the exact one; or the exception that they raise; or a description.
        oracle: the function, method or class that was called.
        what: what both compute, in a few words.
        within: tolerance for our error, relative to the largest element.
    """

    def compare(ours, theirs, *, scheme, oracle, what, within=1e-6):
        error = relative_difference(*ours)
        assert error <= within, f"{scheme} is off by {error:.3g}"
        wrong = relative_difference(*theirs) if isinstance(theirs, tuple) else theirs
        if isinstance(theirs, Exception):
            wrong = f"raises {type(theirs).__name__}"
        keep(request, "errors", {"scheme": scheme, "what": what, **named(oracle), "error": wrong, "ours": error})

    return compare


class Attention(nn.Module):
    """The attention of a model of transformers, computed by Ordinate from the same weights.

    Args:
        projections: weight and bias (or None) that make queries, keys and values.
        out: what reads the heads.
        scheme: how positions enter.
        head_width: channels of a head.
    """

    def __init__(self, projections, out, scheme, head_width):
        super().__init__()
        self.projections, self.out, self.scheme, self.head_width = projections, out, scheme, head_width

    def forward(self, hidden_states, **unused):
        batch, tokens, width = hidden_states.shape
        linear = nn.functional.linear
        q, k, v = (
            linear(hidden_states, *pair).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for pair in self.projections
        )
        at = self.scheme.at(Geometry.causal(tokens))
        y = attend(q, k, v, at)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width)), None


@pytest.fixture
def attention():
    return Attention


def keep(request, table, row):
    """Merge the cases of a test that differ in numbers only into one row: the largest difference."""
    row["test"] = f"{request.path.name}::{request.node.originalname}"
    rows = measured(request.session)[table]
    for known in rows:
        if words(known) == words(row):
            known.update({name: max(known[name], value) for name, value in row.items() if isinstance(value, float)})
            return
    rows.append(row)


def words(row):
    return {name: value for name, value in row.items() if isinstance(value, str)}
