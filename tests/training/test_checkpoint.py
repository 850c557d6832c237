import errno
import hashlib
import json
import os
import pickle

import pytest
import safetensors.torch
import torch

from ordinate.training.checkpoint import (
    CorruptCheckpointError,
    CorruptCheckpointWarning,
    latest_valid_checkpoint,
    read_checkpoint,
    remove_partial,
    write_checkpoint,
)

STATE = {
    "weights": {"a": torch.randn(3, 4), "half": torch.randn(2).bfloat16(), "none": torch.empty(0, 3)},
    "steps": {0: {"step": torch.tensor(7.0)}, 1: {}},
    "betas": (0.9, 0.95),
    "flags": [True, None, 1.5, "x"],
    "global_step": 3,
}


def same(one, other):
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert type(one) is type(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other
        assert type(one) is type(other)


def test_what_is_saved_comes_back_with_its_types(tmp_path):
    write_checkpoint(STATE, tmp_path / "step-1")
    same(STATE, read_checkpoint(tmp_path / "step-1"))


def test_tied_strided_and_single_tensors_come_back(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    state = {"one": whole, "same": whole, "turned": whole.T, "row": whole[1]}
    write_checkpoint(state, tmp_path / "step-1")
    same({**state, "turned": whole.T.contiguous()}, read_checkpoint(tmp_path / "step-1"))


def test_anything_but_data_is_refused_by_its_place(tmp_path):
    with pytest.raises(TypeError, match="checkpoint/outer/0 is a object; leave it out"):
        write_checkpoint({"outer": [object()]}, tmp_path / "step-1")
    with pytest.raises(TypeError, match="dense tensors or plain data; checkpoint/a is a Tensor"):
        write_checkpoint({"a": torch.eye(2).to_sparse()}, tmp_path / "step-1")
    assert list(tmp_path.iterdir()) == []


def test_saving_over_a_checkpoint_replaces_it(tmp_path):
    for number in (1, 2):
        write_checkpoint({"number": number}, tmp_path / "step-1")
    assert read_checkpoint(tmp_path / "step-1") == {"number": 2}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_one_clear_error_and_leaves_the_older_checkpoint(tmp_path, monkeypatch, call):
    write_checkpoint(STATE, tmp_path / "step-1")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(
        OSError, match=r"cannot write a checkpoint.*free space and run the same command again"
    ) as caught:
        write_checkpoint(STATE, tmp_path / "step-2")
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert latest_valid_checkpoint(tmp_path) == tmp_path / "step-1"
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_pickle_in_place_of_tensors_is_refused_and_never_run(tmp_path):
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self):
            return (canary.write_text, ("ran",))

    write_checkpoint(STATE, tmp_path / "step-1")
    manifest = json.loads((tmp_path / "step-1" / "manifest.json").read_text())
    (tmp_path / "step-1" / "tensors.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CorruptCheckpointError, match="does not match its checksum"):
        read_checkpoint(tmp_path / "step-1")
    # even with a manifest that vouches for it
    raw = (tmp_path / "step-1" / "tensors.safetensors").read_bytes()
    manifest["files"]["tensors.safetensors"] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (tmp_path / "step-1" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptCheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "step-1")
    assert not canary.exists()


def test_what_a_dead_process_left_is_removed(tmp_path):
    (tmp_path / ".partial-step-1").mkdir()
    (tmp_path / ".partial-step-1" / "tensors.safetensors").write_bytes(b"x")
    assert latest_valid_checkpoint(tmp_path) is None
    remove_partial(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_a_later_format_is_not_read(tmp_path):
    write_checkpoint(STATE, tmp_path / "step-1")
    path = tmp_path / "step-1" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(CorruptCheckpointError, match="has format 99, this version reads 1"):
        read_checkpoint(tmp_path / "step-1")


def test_only_safetensors_and_json_are_written(tmp_path):
    write_checkpoint(STATE, tmp_path / "step-1")
    names = {"tensors.safetensors", "state.json", "manifest.json"}
    assert {path.name for path in (tmp_path / "step-1").iterdir()} == names
    assert "checkpoint/weights/a" in safetensors.torch.load_file(tmp_path / "step-1" / "tensors.safetensors")


def test_tensors_with_ambiguous_keys_stay_distinct(tmp_path):
    state = {"x": {1: torch.ones(1), "1": torch.zeros(1)}, "a/b": torch.ones(2), "a": {"b": torch.zeros(2)}}
    write_checkpoint(state, tmp_path / "step-1")
    same(state, read_checkpoint(tmp_path / "step-1"))


@pytest.mark.parametrize("call", [1, 2])
def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path, monkeypatch, call):
    write_checkpoint({"number": 1}, tmp_path / "step-1")
    replace, calls = os.replace, []

    def full(*names):
        calls.append(names)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*names)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="free space"):
        write_checkpoint({"number": 2}, tmp_path / "step-1")
    assert read_checkpoint(tmp_path / "step-1") == {"number": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_folder_that_may_not_be_written_is_not_called_full(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match=r"Read-only file system\); make .* writable and run the same command again"):
        write_checkpoint(STATE, tmp_path / "step-1")


def vouch(folder, name, text):
    """Write a file of a checkpoint, and let the manifest vouch for it."""
    (folder / name).write_text(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    raw = text.encode()
    manifest["files"][name] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "state",
    ['{"$items": [["a", {"$tensor": "none"}]]}', '{"$items": [1]}', '{"$tuple": [], "$tuple": []}', "[" * 100_000],
    ids=["no-such-tensor", "not-a-pair", "twice", "deep"],
)
def test_a_state_that_makes_no_sense_is_damaged_even_if_vouched_for(tmp_path, state):
    for number in (1, 2):
        write_checkpoint(STATE, tmp_path / f"step-{number}")
    vouch(tmp_path / "step-2", "state.json", state)
    with pytest.raises(CorruptCheckpointError, match="step-2 cannot be read"):
        read_checkpoint(tmp_path / "step-2")
    with pytest.warns(
        CorruptCheckpointWarning, match="step-2 cannot be read.*resuming from the previous checkpoint, step-1"
    ):
        assert latest_valid_checkpoint(tmp_path) == tmp_path / "step-1"


def test_only_folders_named_like_a_checkpoint_count(tmp_path):
    for name in ("step-notes", "step-9-copy", "other"):
        (tmp_path / name).mkdir()
    assert latest_valid_checkpoint(tmp_path) is None
    for number in (9, 10):
        write_checkpoint({"number": number}, tmp_path / f"step-{number}")
    assert latest_valid_checkpoint(tmp_path) == tmp_path / "step-10"
