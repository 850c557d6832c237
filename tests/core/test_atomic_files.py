import json
import os

import pytest

from ordinate.core.atomic_files import read_checksummed, write_checksummed, write_json, write_text


def test_a_file_is_written_atomically(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old\n")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.txt'"):
        write_text(path, "new")
    assert path.read_text() == "old\n"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_one_and_names_may_have_any_length(tmp_path):
    link, target = tmp_path / "link.txt", tmp_path / "other" / ("x" * 251 + ".txt")
    target.parent.mkdir()
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_json_keeps_its_order_and_rejects_nan_and_infinity(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "é"})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"b": 1, "a": "é"}
    assert (tmp_path / "a.json").read_text(encoding="utf-8").index('"b"') < 8
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", {"a": float("nan")})
    assert not (tmp_path / "b.json").exists()


def test_a_flipped_bit_in_a_checksummed_file_is_detected(tmp_path):
    path, value = tmp_path / "a.json", {"loss": 2.125, "name": "é", "numbers": [1, 2, 3]}
    write_checksummed(path, value)
    assert read_checksummed(path) == value
    raw = path.read_bytes()
    # in a digit, a letter, a bracket, and in the checksum
    for place in range(len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(ValueError, match="checksum"):
            read_checksummed(path)


def test_a_checksummed_file_may_have_other_line_endings(tmp_path):
    path = tmp_path / "a.json"
    write_checksummed(path, {"loss": 2.125})
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_checksummed(path) == {"loss": 2.125}


@pytest.mark.parametrize("text", ['{\n "loss": 2.125\n}', '{"checksum": "", "loss": 2.125}', "[1]", "", "{" * 9999])
def test_a_file_without_a_checksum_is_refused_by_name(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(
        ValueError, match=r"must start with the checksum of its content; .*a\.json does not.*; try again"
    ):
        read_checksummed(path, "try again")


@pytest.mark.parametrize("kept", [0, 40, 90, -1])
def test_a_truncated_file_is_refused(tmp_path, kept):
    path = tmp_path / "a.json"
    write_checksummed(path, {"loss": 2.125, "numbers": [1, 2, 3]})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"checksum.*a\.json does not.*; restore it from a backup"):
        read_checksummed(path)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_new_file_has_the_permissions_of_any_other(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "file.txt", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == mode
