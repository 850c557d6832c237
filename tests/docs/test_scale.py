import runpy
from pathlib import Path

script = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "scale.py"))

FOUND = {"runs": 10000.0, "settle_seconds": 3.6, "overhead_ms": 1.25, "result_ms": 0.8, "going_on_seconds": 5.0}
FOUND |= {"status_seconds": 6.0, "report_seconds": 14.7, "report_mb": 2.04, "driver_gb": 0.45, "report_adds_gb": 0.28}
FOUND |= {"few_report_seconds": 0.8, "text_mb": 200.0, "text_seconds": 3.2, "again_seconds": 1.4}


def test_a_table_shows_the_results():
    table = script["table"](FOUND | {"ray": {"task_ms": 0.58}})
    assert table.startswith("| 10,000 runs | |\n")
    assert "| report | 15 s, 2.0 MB |" in table
