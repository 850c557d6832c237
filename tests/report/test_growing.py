import pytest

from ordinate.core.progress import Progress
from ordinate.report import growing
from ordinate.report.growing import GrowingReport


def ended(run, stage="done"):
    return Progress(item=run, stage=stage)


@pytest.mark.extended
def test_the_report_exists_after_two_runs_and_grows(write, result, monkeypatch):
    monkeypatch.setattr(growing, "PATIENCE", 0.0)
    folder, said = write([result("rope", 0)]), []
    report = GrowingReport(folder, said.append)
    report.on_progress(ended("rope-s0", "training"))
    report.on_progress(ended("rope-s0"))
    assert not (folder / "report.html").exists()
    write([result("rope", 0), result("alibi", 0)])
    report.on_progress(ended("alibi-s0"))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "2 planned runs have no result yet" in page
    assert "use “rope”" in page
    write([result(label, 0) for label in ("rope", "alibi", "none", "sinusoidal")])
    report.on_progress(ended("none-s0", "diverged"))
    assert "no result yet" not in (folder / "report.html").read_text(encoding="utf-8")
    (message,) = said
    assert str(folder / "report.html") in message.message


def test_a_slow_report_is_not_built_for_every_run(write, result, monkeypatch):
    built = []
    monkeypatch.setattr(growing, "build_report", lambda folder: built.append(folder) or pytest.fail("once"))
    monkeypatch.setattr(
        growing, "build_report", lambda folder: built.append(folder) or (_ for _ in ()).throw(OSError)
    )
    report = GrowingReport(write([result("rope", 0)]), lambda progress: None)
    report._next = float("inf")
    for run in ("a", "b", "c"):
        report.on_progress(ended(run))
    assert built == []
