"""Every test runs offline, on one thread, with the axes of all tensors checked. Test tiers are formed here."""

import functools
import gc
import inspect
import os
import socket
from collections import defaultdict
from contextlib import nullcontext
from itertools import combinations

import hypothesis
import jaxtyping
import pytest
import torch

# tests do not depend on a C++ compiler; those of the C++ backend enable it themselves
os.environ["ORDINATE_NATIVE"] = "off"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

check_shapes = jaxtyping.jaxtyped


class CurrentTest:
    """The test that runs, None outside of all; and whether it is of the extended tier."""

    item = None
    extended = False


def check_types(typechecker):
    """`jaxtyping.jaxtyped` for functions that name the axes of a tensor; of all others the types alone are checked.

    Nine of ten functions are of the second kind, for which jaxtyping's record of axes is much work for nothing; lint
    checks their types too, so that only the extended tier does so again. A function is prepared at its first call: no
    test calls all of them. In each test its first call is checked; later ones hardly differ, and cost as much.
    """

    def decorate(checked):
        if inspect.isclass(checked):
            return check_shapes(typechecker=typechecker)(checked)
        strict = named = None
        item = CurrentTest

        @functools.wraps(checked)
        def call(*args, **kwargs):
            nonlocal strict, named, item
            if item is CurrentTest.item or jaxtyping.config.jaxtyping_disable:
                return checked(*args, **kwargs)
            item = CurrentTest.item
            if named is None:
                named = any(
                    isinstance(kind, str) or "jaxtyping" in repr(kind) for kind in checked.__annotations__.values()
                )
            if not (named or CurrentTest.extended):
                return checked(*args, **kwargs)
            if strict is None:
                strict = (check_shapes(typechecker=typechecker) if named else typechecker)(checked)
            return strict(*args, **kwargs)

        return call

    return decorate


# before anything of ordinate is imported: from then on each call checks the axes of its tensors; an int is a float
jaxtyping.jaxtyped = check_types
jaxtyping.install_import_hook(
    "ordinate", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True, violation_type=TypeError))"
)

# what is imported and collected stays to the end: the garbage collector need not go through it again and again
gc.disable()

torch.set_num_threads(1)
# a machine under load is slow, not wrong
hypothesis.settings.register_profile("explore", deadline=None, database=None)
# the same examples each time: what fails on one machine fails on all; `--hypothesis-profile=explore` looks further
hypothesis.settings.register_profile("offline", hypothesis.settings.get_profile("explore"), derandomize=True)
hypothesis.settings.load_profile("offline")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    CurrentTest.item = item
    CurrentTest.extended = any(item.get_closest_marker(tier) is not None for tier in ("extended", "long"))
    return (yield)


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where the tests make their tensors and modules, such as cuda")


def pytest_configure(config):
    device = config.getoption("--device")
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise pytest.UsageError(f"--device {device} needs a GPU that torch.cuda finds; got none; leave --device out")
    if device == "cpu":
        # torch's own also keeps a stack trace for each kind of device not used yet: a twentieth of the time of tests
        torch.manual_seed = torch.default_generator.manual_seed


@pytest.fixture(autouse=True)
def _device(request):
    """Tensors and modules are made on the device of `--device`."""
    device = request.config.getoption("--device")
    with nullcontext() if device == "cpu" else torch.device(device):
        yield


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Only sockets of this machine may be opened."""
    connect = socket.socket.connect

    def local(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test must not use the network; it asked for {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)


@pytest.fixture(autouse=True)
def _seeded():
    """Each test draws the same numbers whatever ran before it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def untyped():
    """Call ordinate as a user does, without the check of tensor types: what came reaches our own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Drop the cases that a `where` excludes, and mark as `extended` what the `covering` of a test does not need.

    `@pytest.mark.where(lambda name: ...)` keeps the parameter sets for which the function is true: those that exist.

    `@pytest.mark.covering(1)` keeps enough of a function's parameter sets to have each value of each parameter once,
    `covering(2)` each pair of values of two parameters (pairwise testing); `covering(0)` keeps the first set only.
    """
    items[:] = [item for item in items if all(exists(item, mark.args[0]) for mark in item.iter_markers("where"))]
    functions = defaultdict(list)
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("extended"):
            functions[item.location[0], item.originalname].append(item)
    for cases in functions.values():
        (strength,) = cases[0].get_closest_marker("covering").args
        for case in spare(cases, strength):
            case.add_marker(pytest.mark.extended)


def exists(item, condition):
    """Whether a condition on parameters, by name, holds for those of a case."""
    return condition(*(item.callspec.params[name] for name in inspect.signature(condition).parameters))


def spare(cases, strength):
    """The cases whose combinations of values all occur in other cases, chosen greedily and deterministically."""
    wanted = {case: combined(case, strength) for case in cases}
    missing = set().union(*wanted.values())
    left = list(cases)
    while missing:
        best = max(left, key=lambda case: len(wanted[case] & missing))
        missing -= wanted[best]
        left.remove(best)
    return left


def combined(case, strength):
    """Every combination of so many parameters of a case, with their values."""
    # a value is the same object in all the cases that it is part of
    values = [(name, id(value)) for name, value in sorted(case.callspec.params.items(), key=lambda pair: pair[0])]
    return set(combinations(values, min(strength, len(values))))
