"""No file of the current folder is executed by a process that Ordinate starts."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ordinate
from ordinate.cli.check import _outcomes
from ordinate.core.module_command import module_command

SOURCE = Path(ordinate.__file__).parent
# modules of Python that are imported at the start, some of them before any line of ours is read
NAMES = ("ast", "json", "socket", "ctypes", "tempfile", "dataclasses", "inspect", "argparse", "numpy")


@pytest.fixture
def planted(tmp_path):
    """A folder with files named like modules of Python; one that is executed leaves a trace."""
    for name in NAMES:
        trace = tmp_path / f"{name}.executed"
        (tmp_path / f"{name}.py").write_text(f"open({str(trace)!r}, 'w')\nraise SystemExit(7)\n")
    return tmp_path


def executed(folder):
    return sorted(path.name for path in folder.glob("*.executed"))


def started(command, folder, **variables):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent), **variables}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_the_planted_files_would_be_executed_by_an_unprotected_process(planted):
    assert started([sys.executable, "-m", "json.tool", "--help"], planted).returncode == 7
    assert executed(planted) == ["json.executed"]


@pytest.mark.parametrize("options", [["-m", "ordinate"], ["-mordinate"], ["-X", "utf8", "-m", "ordinate"]])
def test_python_m_ordinate_executes_no_file_of_the_current_folder(planted, options):
    done = started([sys.executable, *options, "--version"], planted)
    assert (done.returncode, done.stdout.strip()) == (0, ordinate.__version__)
    assert executed(planted) == []


def test_another_program_keeps_its_own_folder(tmp_path):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").write_text("import ordinate\n")
    (tmp_path / "tool" / "__main__.py").write_text("import beside\n")
    (tmp_path / "beside.py").write_text("print('found')\n")
    assert started([sys.executable, "-m", "tool", "ordinate"], tmp_path).stdout == "found\n"


def test_a_module_is_started_without_the_current_folder(planted):
    # this module only defines; what it imports would be found in the folder first
    done = started(module_command("ordinate.core.atomic_files"), planted)
    assert done.returncode == 0, done.stderr
    assert executed(planted) == []


@pytest.mark.extended
def test_every_process_of_python_is_started_by_module_command():
    for path in SOURCE.rglob("*.py"):
        constants = [
            node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)
        ]
        assert path.name in ("module_command.py", "__init__.py") or "-m" not in constants, path


@pytest.mark.extended
@pytest.mark.parametrize("devices", [1, 2])
def test_a_study_executes_no_file_of_the_current_folder(planted, devices):
    # so many steps that the number of threads is measured, in processes of its own
    sizes = {"task": "copy:count=4", "steps": 1000, "batch": 2, "width": 16, "layers": 1, "heads": 2}
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "ordinate", "study", *options, "--schemes", "none", "rope", "--out", "out"]
    several = ["--devices", "2"] if devices > 1 else []
    done = started([*command, *several], planted, OMP_NUM_THREADS="1", ORDINATE_NATIVE="off")
    assert done.returncode == 0, done.stdout + done.stderr
    assert executed(planted) == []


def test_a_module_to_check_is_found_in_the_current_folder_and_replaces_none_of_python(planted, monkeypatch):
    (planted / "xyzzy_mine.py").write_text("import colorsys\nclass Mine: pass\n")
    (planted / "colorsys.py").write_text(f"open({str(planted / 'colorsys.executed')!r}, 'w')\n")
    monkeypatch.chdir(planted)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("colorsys", "xyzzy_mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ValueError, match=r"Mine must be a subclass of .* in xyzzy_mine"):
        _outcomes("xyzzy_mine:Mine")
    monkeypatch.delitem(sys.modules, "xyzzy_mine")
    assert executed(planted) == []
