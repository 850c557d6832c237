"""The rules of the house that no linter knows."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordinate import catalog

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ordinate"
FILES = sorted(SOURCE.rglob("*.py"))
CONTRACTS = {
    "schemes": "scheme.Scheme",
    "spectra": "spectrum.Spectrum",
    "routes": "route.Route",
    "mixers": "mixer.Mixer",
    "corpora": "corpus.Corpus",
    "tokenizers": "tokenizer.Tokenizer",
    "tasks": "task.Task",
    "probes": "probe.Probe",
}
# a probe is known to its readers by its question
PAGES = {"probes": "questions"}
MEMBERS = [(folder, name) for folder in CONTRACTS for name in catalog.names(f"ordinate.{folder}")]


def named(path):
    return str(path.relative_to(SOURCE))


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path):
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def imports(path):
    """The dotted names of everything that a file imports."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            package = ".".join(["ordinate", *path.relative_to(SOURCE).parts[: -node.level]]) if node.level else ""
            module = ".".join(part for part in (package, node.module or "") if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("folder", "name"), MEMBERS)
def test_a_member_file_defines_exactly_one_member(folder, name):
    module, kind = CONTRACTS[folder].split(".")
    contract = getattr(importlib.import_module(f"ordinate.{module}"), kind)
    assert issubclass(catalog.load(f"ordinate.{folder}", contract, name), contract)


@pytest.mark.parametrize(("folder", "name"), MEMBERS)
def test_a_member_has_its_tests(folder, name):
    path = ROOT / "tests" / folder / f"test_{name}.py"
    assert path.is_file(), f"write {path.relative_to(ROOT)}"


@pytest.mark.parametrize(("folder", "name"), MEMBERS)
def test_a_member_has_its_page(folder, name):
    path = ROOT / "docs" / PAGES.get(folder, folder) / f"{name}.md"
    assert path.is_file(), f"write {path.relative_to(ROOT)}"
    assert "```python" in path.read_text(encoding="utf-8"), f"give {path.relative_to(ROOT)} an example that runs"


@pytest.mark.parametrize(("folder", "name"), MEMBERS)
def test_members_never_import_each_other(folder, name):
    others = [f"ordinate.{other}.{member}" for other, member in MEMBERS if (other, member) != (folder, name)]
    used = [x for x in imports(SOURCE / folder / f"{name}.py") for other in others if f"{x}.".startswith(f"{other}.")]
    assert used == [], f"{folder}/{name}.py imports {used}; move what they share down to ops/"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_has_at_most_250_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 250


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_function_has_at_most_40_lines_and_8_arguments(path):
    for function in functions(path):
        first, docstring = function.body[0], 0
        if ast.get_docstring(function) is not None:
            docstring = first.end_lineno - first.lineno + 1
        lines = function.end_lineno - function.lineno + 1 - docstring
        assert lines <= 40, f"{function.name} has {lines} lines; split it"
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        count = sum(argument.arg not in ("self", "cls") for argument in arguments)
        assert count <= 8, f"{function.name} takes {count} arguments; gather some into a value"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_reads_a_pickle_or_runs_text(path):
    forbidden = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
    assert not {name.split(".")[0] for name in imports(path)} & forbidden
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"eval", "exec", "compile", "__import__", "torch.load", "yaml.load"}, called
            assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_names_say_what_they_hold(path):
    assert not {"utils", "util", "helpers", "common", "misc"} & set(path.with_suffix("").parts)


def modules_after(program):
    """The top-level modules that a fresh interpreter has after a program."""
    program += "\nimport sys\nprint('\\n' + ' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_itself_waits_with_torch():
    assert "torch" not in modules_after("import ordinate; ordinate.__version__")
    assert "torch" in modules_after("import ordinate; ordinate.attend")


def test_the_report_needs_no_torch():
    found = [
        f"import ordinate.report.{path.stem}" for path in (SOURCE / "report").glob("*.py") if path.stem != "__init__"
    ]
    assert "torch" not in modules_after("\n".join(["import ordinate.report", *found]))


def test_help_needs_no_torch():
    if not (SOURCE / "cli" / "main.py").is_file():
        pytest.skip("there is no command line yet")
    program = "import contextlib, sys\nsys.argv = ['ordinate', '--help']\nfrom ordinate.cli.main import main\n"
    assert "torch" not in modules_after(program + "with contextlib.suppress(SystemExit):\n    main()")


def test_every_public_name_can_be_imported():
    package = importlib.import_module("ordinate")
    assert set(package.__all__) >= {"attend", "Geometry", "Decoder"}
    assert all(getattr(package, name) is not None for name in package.__all__)
