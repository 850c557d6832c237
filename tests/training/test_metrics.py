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
    Metrics(tmp_path / "none.jsonl").truncate(3)
