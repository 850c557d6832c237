"""The real command at a URL: started on one machine, resumed on another, and logged by other tools."""

import fsspec
import pytest

from ordinate.cli.application import app
from ordinate.core.atomic_files import read_checksummed

SIZES = {
    "task": "copy:count=4",
    "steps": 4,
    "batch": 4,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warmup_steps": 1,
    "task_samples": 20,
}
SIZES |= {"eval_length_multiples": 1, "checkpoint-every": 2}
TINY = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))] + ["--schemes", "rope", "none"]


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
def test_another_machine_finds_a_finished_study_at_a_url(tmp_path, monkeypatch, capsys):
    for machine in ("one", "other"):
        (tmp_path / machine).mkdir()
        monkeypatch.chdir(tmp_path / machine)
        assert app(["study", *TINY, "--out", f"file://{tmp_path}/there", "--logger", "csv", "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "2 runs of 4 steps; 2 to do" in said
    assert "2 runs of 4 steps; 0 to do" in said
    there = fsspec.filesystem("file")
    for name in ("study.json", "report.html", "results.csv", "runs/rope-s0/result.json"):
        assert there.exists(f"{tmp_path}/there/{name}")
    (made,) = (tmp_path / "one" / "runs").iterdir()
    assert len((made / "logs" / "csv" / "rope-s0" / "metrics.csv").read_text().splitlines()) >= 5
    assert not there.exists(f"{tmp_path}/there/logs")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_on_this_machine_and_on_a_cluster_the_results_are_the_same(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    tiny = [*TINY, "--seeds", "3"]
    monkeypatch.chdir(tmp_path)
    places = {"here": "here", "there": "there", "url": f"file://{tmp_path}/url"}
    for out, where in (("here", ["--workers", "2"]), ("there", ["--ray", "auto"]), ("url", ["--ray", "auto"])):
        assert app(["study", *tiny, "--out", places[out], *where]) == 0
    tables = [(tmp_path / out / "results.csv").read_bytes() for out in places]
    assert tables[0] == tables[1] == tables[2]
    results = [
        {
            path.parent.name: read_checksummed(path) | {"cost": 0}
            for path in (tmp_path / out).glob("runs/*/result.json")
        }
        for out in places
    ]
    assert results[0] == results[1] == results[2]
    assert len(results[0]) == 6
