import sys

import pytest

from ordinate.cli.main import main
from ordinate.replications.runner import read


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
