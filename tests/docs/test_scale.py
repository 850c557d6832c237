"""The table of docs/scale.md is that of the newest simulation that is kept."""

import json

from benchmarks import scale
from benchmarks.saving import RESULTS

FOUND = {"runs": 10000.0, "settle_seconds": 3.6, "overhead_ms": 1.25, "result_ms": 0.8, "going_on_seconds": 5.0}
FOUND |= {"status_seconds": 6.0, "report_seconds": 14.7, "report_mb": 2.04, "driver_gb": 0.45, "report_gb": 0.73}


def test_the_table_is_that_of_the_newest_results():
    page = scale.PAGE.read_text(encoding="utf-8")
    kept = sorted(RESULTS.glob("scale_*.json"), key=lambda path: path.stem[-10:])
    assert (scale.table(kept[-1]) if kept else "No run of it on an idle machine is kept yet.") in page


def test_a_table_is_written_between_its_marks(tmp_path, monkeypatch):
    page, results = tmp_path / "scale.md", tmp_path / "scale.json"
    page.write_text(f"before\n{scale.MARKS[0]}\nold\n{scale.MARKS[1]}\nafter\n")
    results.write_text(json.dumps({"results": FOUND | {"ray": {"task_ms": 0.58}}}))
    monkeypatch.setattr(scale, "PAGE", page)
    for _ in range(2):
        scale.tell(results)
        said = page.read_text()
        assert said.startswith("before\n")
        assert said.endswith("\nafter\n")
        assert "| report | 15 s, 2.0 MB |" in said
        assert "old" not in said
