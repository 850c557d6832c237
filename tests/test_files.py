import json
import os

import pytest

from ordinate.files import write_json, write_text


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old\n")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old\n"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_json_keeps_its_order_and_refuses_what_is_no_number(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "é"})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"b": 1, "a": "é"}
    assert (tmp_path / "a.json").read_text(encoding="utf-8").index('"b"') < 8
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", {"a": float("nan")})
    assert not (tmp_path / "b.json").exists()
