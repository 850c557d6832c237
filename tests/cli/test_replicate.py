import sys

import pytest

from ordinate.cli.main import main
from ordinate.data.tasks.copy import Copy
from ordinate.models.shape import Shape
from ordinate.replications.longer_texts import LENGTHS, split_name
from ordinate.replications.papers.press import Press
from ordinate.replications.runner import read, trained_path
from ordinate.replications.trained import Arm
from ordinate.replications.trained_runs import SEEDS
from ordinate.replications.training import read_runs


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["ordinate", "replicate", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_the_verdict_is_printed_first_and_the_result_saved(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, "velickovic", "--out", tmp_path) == 0
    assert capsys.readouterr().out.startswith("velickovic: agrees: 2\n")
    assert read(tmp_path / "velickovic.json").headline == "agrees: 2"


def test_without_a_name_replications_are_listed(monkeypatch, capsys):
    assert run(monkeypatch) == 0
    assert "saponati" in capsys.readouterr().out


def test_an_unknown_name_is_bad_input(monkeypatch, capsys):
    assert run(monkeypatch, "saponatti") == 2
    assert "did you mean 'saponati'?" in capsys.readouterr().err


@pytest.mark.extended
def test_models_are_trained_once_and_then_measured(monkeypatch, tmp_path, capsys):
    task = Copy(count=2, symbols=4)
    shape = Shape(vocabulary=task.vocabulary, width=8, layers=1, heads=1)
    arms = tuple(Arm(arm.name, shape, 1, 2, 1e-3) for arm in Press.arms)
    numbers = {**{split_name(length): 2.0 for length in LENGTHS}, "context": 0.0}
    monkeypatch.setattr(Press, "arms", arms)
    monkeypatch.setattr(Press, "task", lambda self, arm: task)
    monkeypatch.setattr(Press, "examine", lambda self, model: numbers)
    folders = ("--out", tmp_path, "--trained", tmp_path / "trained")
    assert run(monkeypatch, "press", *folders) == 0
    assert "not measured, extrapolates: it needs trained models" in capsys.readouterr().out
    assert run(monkeypatch, "press", "--train", *folders) == 0
    assert capsys.readouterr().out.startswith("press: does not agree: 4\n")
    runs = read_runs(trained_path(tmp_path / "trained", "press"), Press())
    assert len(runs.runs) == SEEDS * len(arms)
    # what is there is not trained again, and measured without training as well
    monkeypatch.setattr(Press, "examine", None)
    assert run(monkeypatch, "press", "--train", *folders) == run(monkeypatch, "press", *folders) == 0
    assert read(tmp_path / "press.json").trained.startswith("24 models")
