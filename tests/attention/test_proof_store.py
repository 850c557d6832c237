"""Proofs on disk: damaged, of another version, written by several processes at once, in folders that take none."""

import subprocess
import sys

import pytest
import torch

from ordinate.attention import _proof_store
from ordinate.attention._proof_store import ProofStore, environment

FACTS = {"environment": {"device": "pretended"}, "form": {"widths": (16, 16), "gradients": True}}


@pytest.fixture
def store(tmp_path):
    tmp_path.chmod(0o700)
    return ProofStore(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"{", b"[]", b"null", b"NaN", b'{"environment": {"device": "pretended"}}', b"[" * 100_000],
)
def test_a_damaged_proof_is_none_and_is_replaced(store, content):
    store.add(FACTS)
    assert store.has(FACTS)
    (path,) = store.folder.iterdir()
    path.write_bytes(content)
    assert not store.has(FACTS)
    store.add(FACTS)
    assert store.has(FACTS)
    assert list(store.folder.iterdir()) == [path]


def test_a_folder_in_the_place_of_a_proof_is_no_error(store):
    store.add(FACTS)
    (path,) = store.folder.iterdir()
    path.unlink()
    path.mkdir()
    store.add(FACTS)
    assert not store.has(FACTS)
    assert list(store.folder.iterdir()) == [path]


def test_a_folder_that_takes_no_files_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    for folder in (None, tmp_path / "file", tmp_path / "missing"):
        store = ProofStore(folder)
        store.add(FACTS)
        assert not store.has(FACTS)


WRITER = """
import sys
from pathlib import Path
from ordinate.attention._proof_store import ProofStore

store, facts = ProofStore(Path(sys.argv[1])), {"environment": {"device": "pretended"}, "form": {"text": "x" * 5000}}
for _ in range(60):
    store.add(facts)
    # what another process replaces at the same time is whole, too
    assert store.has(facts)
"""


def test_processes_that_store_a_proof_at_once_leave_it_whole(store):
    command = [sys.executable, "-c", WRITER, str(store.folder)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, umask=0o022) for _ in range(3)]
    for one in running:
        _, said = one.communicate(timeout=120)
        assert one.returncode == 0, said
    assert len(list(store.folder.iterdir())) == 1


@pytest.fixture
def gpu(monkeypatch):
    """Stands for a GPU; returns the versions that may be changed."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return {
        "another GPU": lambda: monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another GPU"),
        "capability": lambda: monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0)),
        "PyTorch": lambda: monkeypatch.setattr(torch, "__version__", "9.0"),
        "Triton": lambda: monkeypatch.setattr(_proof_store, "_version", lambda package: "9.0"),
        "CUDA": lambda: monkeypatch.setattr(torch.version, "cuda", "99.0"),
        "cuDNN": lambda: monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 99000),
        "code": lambda: monkeypatch.setattr(_proof_store, "_code_digest", lambda: "other"),
    }


def test_the_digest_is_of_all_packages_that_decide_what_agrees():
    listed = "import sys, ordinate.attention._proof; print(*(x for x in sys.modules if x.startswith('ordinate.')))"
    modules = subprocess.check_output([sys.executable, "-c", listed], text=True).split()
    packages = {name.split(".")[1] for name in modules} - {"_public_names"}
    assert packages == set(_proof_store.SOURCES)


@pytest.mark.parametrize("changed", ["another GPU", "capability", "PyTorch", "Triton", "CUDA", "cuDNN", "code"])
def test_a_proof_of_another_device_or_version_does_not_count(store, gpu, changed):
    def facts():
        return FACTS | {"environment": environment(torch.device("cuda", 0))}

    store.add(facts())
    assert store.has(facts())
    gpu[changed]()
    assert not store.has(facts())
