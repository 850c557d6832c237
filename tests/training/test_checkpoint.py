import errno
import json
import os
import pickle

import pytest
import safetensors.torch
import torch

from ordinate.training.checkpoint import DamagedError, PlainCheckpoints, newest_whole, remove_partial

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
    PlainCheckpoints().save_checkpoint(STATE, tmp_path / "step-1")
    same(STATE, PlainCheckpoints().load_checkpoint(tmp_path / "step-1"))


def test_tied_strided_and_single_tensors_come_back(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    state = {"one": whole, "same": whole, "turned": whole.T, "row": whole[1]}
    PlainCheckpoints().save_checkpoint(state, tmp_path / "step-1")
    same({**state, "turned": whole.T.contiguous()}, PlainCheckpoints().load_checkpoint(tmp_path / "step-1"))


def test_anything_but_data_is_refused_by_its_place(tmp_path):
    with pytest.raises(TypeError, match="checkpoint/outer/0 is a object; leave it out"):
        PlainCheckpoints().save_checkpoint({"outer": [object()]}, tmp_path / "step-1")
    assert list(tmp_path.iterdir()) == []


def test_saving_over_a_checkpoint_replaces_it(tmp_path):
    for number in (1, 2):
        PlainCheckpoints().save_checkpoint({"number": number}, tmp_path / "step-1")
    assert PlainCheckpoints().load_checkpoint(tmp_path / "step-1") == {"number": 2}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_one_clear_error_and_leaves_the_older_checkpoint(tmp_path, monkeypatch, call):
    PlainCheckpoints().save_checkpoint(STATE, tmp_path / "step-1")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(
        OSError, match=r"cannot write a checkpoint.*free space and run the same command again"
    ) as caught:
        PlainCheckpoints().save_checkpoint(STATE, tmp_path / "step-2")
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert newest_whole(tmp_path) == tmp_path / "step-1"
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_pickle_in_place_of_tensors_is_refused_and_never_run(tmp_path):
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self):
            return (canary.write_text, ("ran",))

    PlainCheckpoints().save_checkpoint(STATE, tmp_path / "step-1")
    manifest = json.loads((tmp_path / "step-1" / "manifest.json").read_text())
    (tmp_path / "step-1" / "tensors.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DamagedError, match="is not what was written"):
        PlainCheckpoints().load_checkpoint(tmp_path / "step-1")
    # even with a manifest that vouches for it
    from ordinate.training.checkpoint import _describe

    manifest["files"]["tensors.safetensors"] = _describe(tmp_path / "step-1" / "tensors.safetensors")
    (tmp_path / "step-1" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match="cannot be read"):
        PlainCheckpoints().load_checkpoint(tmp_path / "step-1")
    assert not canary.exists()


def test_what_a_dead_process_left_is_removed(tmp_path):
    (tmp_path / ".partial-step-1").mkdir()
    (tmp_path / ".partial-step-1" / "tensors.safetensors").write_bytes(b"x")
    assert newest_whole(tmp_path) is None
    remove_partial(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_a_later_format_is_not_read(tmp_path):
    PlainCheckpoints().save_checkpoint(STATE, tmp_path / "step-1")
    path = tmp_path / "step-1" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(DamagedError, match="has format 99, this version reads 1"):
        PlainCheckpoints().load_checkpoint(tmp_path / "step-1")


def test_only_safetensors_and_json_are_written(tmp_path):
    PlainCheckpoints().save_checkpoint(STATE, tmp_path / "step-1")
    names = {"tensors.safetensors", "state.json", "manifest.json"}
    assert {path.name for path in (tmp_path / "step-1").iterdir()} == names
    assert "checkpoint/weights/a" in safetensors.torch.load_file(tmp_path / "step-1" / "tensors.safetensors")
