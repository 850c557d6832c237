"""Every test runs offline, on one thread, with the types of all tensors checked."""

import os
import socket

import hypothesis
import jaxtyping
import pytest
import torch

# whether there is a compiler changes no test; those of the route itself switch it on
os.environ["ORDINATE_NATIVE"] = "off"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

# before anything of ordinate is imported: from then on each call checks the axes of its tensors; an int is a float
jaxtyping.install_import_hook("ordinate", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

torch.set_num_threads(1)
# a machine under load is slow, not wrong
hypothesis.settings.register_profile("explore", deadline=None, database=None)
# the same examples each time: what fails on one machine fails on all; `--hypothesis-profile=explore` looks further
hypothesis.settings.register_profile("offline", hypothesis.settings.get_profile("explore"), derandomize=True)
hypothesis.settings.load_profile("offline")


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
