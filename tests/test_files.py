import json
import os

import pytest

from ordinate.files import read_sealed, write_json, write_sealed, write_text


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


def test_a_bit_that_flips_in_a_sealed_file_is_noticed(tmp_path):
    path, value = tmp_path / "a.json", {"loss": 2.125, "name": "é", "numbers": [1, 2, 3]}
    write_sealed(path, value)
    assert read_sealed(path) == value
    raw = path.read_bytes()
    # in a digit, a letter, a bracket, and in the checksum
    for place in range(raw.index(b": ") + 3, len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(ValueError, match=r"checksum|decode|Expecting|delimiter|control"):
            read_sealed(path)


def test_a_sealed_file_may_come_with_the_line_ends_of_another_system(tmp_path):
    path = tmp_path / "a.json"
    write_sealed(path, {"loss": 2.125})
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_sealed(path) == {"loss": 2.125}


def test_a_file_without_a_seal_is_read_as_it_is(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"loss": 2.125})
    assert read_sealed(path) == {"loss": 2.125}
    path.write_text("[1]")
    with pytest.raises(ValueError, match="holds a JSON object"):
        read_sealed(path)
    path.write_text('{"loss": NaN}')
    with pytest.raises(ValueError, match="NaN is not a number"):
        read_sealed(path)
