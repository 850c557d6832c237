import pytest

from ordinate.training.metrics import Metrics


def test_a_torn_last_line_is_dropped(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert metrics.read() == []
    metrics.append(1, 0.5)
    metrics.append(2, 0.25)
    with metrics.path.open("ab") as file:
        file.write(b'{"step": 3, "lo')
    assert metrics.read() == [(1, 0.5), (2, 0.25)]
    metrics.truncate(1)
    metrics.append(2, 0.75)
    assert metrics.read() == [(1, 0.5), (2, 0.75)]


def test_going_on_from_a_checkpoint_forgets_what_came_after(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    for step in range(1, 6):
        metrics.append(step, 1 / 3 * step)
    metrics.truncate(3)
    assert metrics.read() == [(1, 1 / 3), (2, 2 / 3), (3, 1.0)]
    metrics.truncate(0)
    assert metrics.read() == []
    Metrics(tmp_path / "none.jsonl").truncate(0)


def test_what_power_loss_left_after_a_checkpoint_is_forgotten(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.append(1, 0.5)
    whole = metrics.path.read_bytes()
    for rest in (b"\0" * 40 + b"\n", b"[]\n", b'{"step": 2}\n', b"{\n"):
        metrics.path.write_bytes(whole + rest)
        assert metrics.read() == [(1, 0.5)]
        metrics.truncate(1)
        assert metrics.path.read_bytes() == whole


@pytest.mark.parametrize("rest", [b"", b'{"step": 1, "loss": 1.0}\n{"step": 3, "loss": 1.0}\n'])
def test_a_loss_missing_before_the_checkpoint_is_reported(tmp_path, rest):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.path.write_bytes(rest)
    with pytest.raises(
        ValueError, match=r"every step up to the checkpoint's, 2; it has \d valid lines; restore the file"
    ):
        metrics.truncate(2)
    assert metrics.path.read_bytes() == rest


def test_a_bit_that_flips_in_a_loss_is_noticed(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        metrics.append(step, 2.125)
    raw = metrics.path.read_bytes()
    place = raw.index(b"2.125", raw.index(b"\n")) + 3
    metrics.path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    assert metrics.read() == [(1, 2.125)]
    with pytest.raises(ValueError, match="it has 1 valid lines"):
        metrics.truncate(3)
    # lines of before there were checksums
    metrics.path.write_text('{"step": 1, "loss": 0.5}\n')
    assert metrics.read() == [(1, 0.5)]
