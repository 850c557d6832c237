"""Layout rules that no linter checks. Each test lists all violations together."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordinate.cli.list import CONTRACTS
from ordinate.core import catalog

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ordinate"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
PACKAGES = {
    *(
        "core",
        "ops",
        "schemes",
        "attention",
        "mixers",
        "data",
        "models",
        "evaluation",
        "pretrained",
        "training",
        "study",
        "report",
    ),
    *("probing", "replications", "explorer", "testing", "cli"),
}
FACE = {"__init__.py", "__main__.py", "_public_names.py", "__init__.pyi", "py.typed", "spectra.py"}
# where the tests and the page of a member are, below tests/ and docs/, if not in the folder of its kind
TESTS = {kind: package.replace(".", "/") for kind, (package, _, _) in CONTRACTS.items()}
PAGES = {"probes": "questions"}
# families share a page and one test file for each direction; replications share a page
OWN_TESTS = [kind for kind in CONTRACTS if kind != "families"]
MEMBERS = [(kind, name) for kind in OWN_TESTS for name in catalog.names(f"ordinate.{CONTRACTS[kind][0]}")]
OWN_PAGE = [(kind, name) for kind, name in MEMBERS if kind != "replications"]


def dotted(path):
    parts = ["ordinate", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PUBLIC = sorted(dotted(path.with_suffix(".py")) for path in SOURCE.rglob("__init__.pyi"))
MODULES = {dotted(path): path for path in TREES}


def imports(path):
    """The dotted names of everything that a file imports, anywhere in it."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively; imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(path):
    """The modules of the package that a file imports, names in them cut off."""
    for name in imports(path):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        if name:
            yield name


def functions(path):
    return [node for node in ast.walk(TREES[path]) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_the_top_holds_the_packages_and_the_public_face():
    found = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"}
    assert found == PACKAGES | FACE


def test_no_module_imports_in_a_circle():
    """Lazy imports and those under TYPE_CHECKING count."""
    below = {name: set(imported_modules(path)) - {name} for name, path in MODULES.items()}
    # a package's own file says which submodules serve its names; it is no step of a walk
    below = {name: {other for other in others if MODULES[other].stem != "__init__"} for name, others in below.items()}
    # what imports nothing, or is imported by nothing, of the rest lies on no circle
    while loose := [
        n for n in below if not below[n] & below.keys() or not any(n in other for other in below.values())
    ]:
        for name in loose:
            del below[name]
    assert not below, f"these modules import each other in a circle: {sorted(below)}"


def test_a_member_file_defines_exactly_one_member():
    for package, module, contract in CONTRACTS.values():
        kind = getattr(importlib.import_module(f"ordinate.{module}"), contract)
        for name in catalog.names(f"ordinate.{package}"):
            assert issubclass(catalog.load(f"ordinate.{package}", kind, name), kind)


def test_a_member_has_its_tests():
    missing = [
        path for kind, name in MEMBERS if not (path := ROOT / "tests" / TESTS[kind] / f"test_{name}.py").is_file()
    ]
    assert not missing, f"write {[str(path.relative_to(ROOT)) for path in missing]}"


def test_a_member_has_its_page_with_an_example_that_runs():
    paths = [ROOT / "docs" / PAGES.get(kind, kind) / f"{name}.md" for kind, name in OWN_PAGE]
    missing = [path for path in paths if not path.is_file() or "```python" not in path.read_text(encoding="utf-8")]
    assert not missing, f"write {[str(path.relative_to(ROOT)) for path in missing]}, each with an example"


def test_a_member_imports_nothing_of_its_package_but_the_contract():
    """What members share lies in a private module of the package, or in ops/."""
    offenders = []
    for package, _, _ in CONTRACTS.values():
        owner = f"ordinate.{package}"
        for name in catalog.names(owner):
            used = list(imported_modules(SOURCE / package.replace(".", "/") / f"{name}.py"))
            members = {f"{owner}.{other}" for other in catalog.names(owner)} - {f"{owner}.{name}"}
            offenders += [(f"{owner}.{name}", other) for other in used if other in members]
            if owner in ("ordinate.schemes", "ordinate.mixers"):
                above = {"_composition", "_score_mod", "_spec", "_plots"}
                offenders += [(f"{owner}.{name}", other) for other in used if other.rpartition(".")[2] in above]
    assert not offenders, f"move what these share down to a private module or to ops/: {offenders}"


def test_files_have_at_most_400_lines():
    long = {dotted(path): n for path in TREES if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long, f"split {long}"


def test_functions_have_at_most_40_lines_and_8_arguments():
    offenders = []
    for path in TREES:
        for function in functions(path):
            first, docstring = function.body[0], 0
            if ast.get_docstring(function) is not None:
                docstring = first.end_lineno - first.lineno + 1
            lines = function.end_lineno - function.lineno + 1 - docstring
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            count = sum(argument.arg not in ("self", "cls") for argument in arguments)
            if lines > 40 or count > 8:
                offenders.append(f"{dotted(path)}.{function.name}: {lines} lines, {count} arguments")
    assert not offenders, offenders


def test_nothing_reads_a_pickle_or_runs_text():
    modules = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
    calls = {"eval", "exec", "compile", "__import__", "torch.load", "yaml.load"}
    offenders = [(dotted(path), name) for path in TREES for name in imports(path) if name.split(".")[0] in modules]
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                pickled = any(keyword.arg == "allow_pickle" for keyword in node.keywords)
                if ast.unparse(node.func) in calls or pickled:
                    offenders.append((dotted(path), ast.unparse(node.func)))
    assert not offenders, offenders


def test_file_names_say_what_is_in_the_file():
    vague = {"utils", "util", "helpers", "common", "misc"}
    assert not [path for path in TREES if vague & set(path.with_suffix("").parts)]


def modules_after(program):
    """The top-level modules that a fresh interpreter has after a program."""
    program += "\nimport sys\nprint('\\n' + ' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_the_report_and_help_do_not_import_torch():
    found = [f"import {dotted(path)}" for path in TREES if path.is_relative_to(SOURCE / "report")]
    program = ["import contextlib, sys", "import ordinate; ordinate.__version__", *found]
    program += ["sys.argv = ['ordinate', '--help']", "from ordinate.cli.main import main"]
    program += ["with contextlib.suppress(SystemExit):", "    main()"]
    assert "torch" not in modules_after("\n".join(program))


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_can_be_imported(package):
    module = importlib.import_module(package)
    assert module.__all__
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_no_duration_is_taken_from_the_clock_of_the_day():
    """It may be set back while a run is at work."""
    assert not [path for path in TREES if "time.time(" in path.read_text(encoding="utf-8")]


def test_code_that_is_compiled_copies_no_dataclass_as_pytorch_2_11_cannot_trace():
    # `ordinate.core.records.changed` does; a slice as a default value cannot be traced either
    traced = [path for path in TREES if path.relative_to(SOURCE).parts[0] in ("ops", "attention", "schemes")]
    traced += [SOURCE / "core" / "geometry.py", SOURCE / "core" / "sequence_shard.py"]
    assert [path.name for path in traced if "dataclasses.replace" in imports(path)] == []
    defaults = ((path.name, made.name, x) for path in traced for made in functions(path) for x in made.args.defaults)
    assert [found[:2] for found in defaults if ast.unparse(found[2]).startswith("slice(")] == []
