"""List the test files that a change can affect: `python .ci/affected.py [REVISION]`.

A test file is listed if it changed since the revision (default: the last commit), or if a changed module is reachable
from it over imports: lazy ones, those under TYPE_CHECKING, and packages that the catalog loads by name count. Imports
run strictly downwards, so nothing else can depend on the module.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ordinate"
# a change of these can affect any test
EVERYTHING = ("pyproject.toml", "constraints.txt", "tests/conftest.py")
# tests of documentation and committed results, which no import leads to
PAGES = ("docs/", "README.md", "CONTRIBUTING.md", "zensical.toml", ".ci/", "studies/")


def module_of(path: Path) -> str:
    """The dotted name of a source file."""
    parts = ["ordinate", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}


@cache
def public_names(package: str) -> dict[str, str]:
    """The module that serves each public name of a package, read from its stub."""
    stub = MODULES[package].with_suffix(".pyi") if package in MODULES else Path("none")
    if not stub.is_file():
        return {}
    nodes = ast.parse(stub.read_text(encoding="utf-8")).body
    return {
        alias.name: f"{package}.{node.module}" if node.module else f"{package}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def used_by(path: Path) -> set[str]:
    """The modules that a file names: in imports, and in texts such as the package that a catalog reads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            served = public_names(node.module)
            for alias in node.names:
                found |= {node.module, served.get(alias.name, f"{node.module}.{alias.name}")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for text in re.findall(r"\bordinate(?:\.\w+)+\.?", node.value):
                found.update(name for name in MODULES if f"{name}.".startswith(text.rstrip(".") + "."))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ordinate":
            found.add(public_names("ordinate").get(node.attr, "ordinate"))
    return {name for name in found if name in MODULES}


def reachable(start: set[str], below: dict[str, set[str]]) -> set[str]:
    """Every module that these import, directly or not."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += below[name]
    return seen


def affected(changed: list[str]) -> list[str]:
    """The test files that a change of these files can affect."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    if any(name in EVERYTHING for name in changed):
        return ["tests"]
    below = {name: used_by(path) for name, path in MODULES.items()}
    # a file that is no module, such as C++ or a template, belongs to every module of its folder
    touched = {name for name, path in MODULES.items() for file in changed if _belongs(path, ROOT / file)}
    folders = {str(Path(file).parent) for file in changed if file.startswith("tests/") and "/test_" not in file}
    chosen = []
    for test in tests:
        name = str(test.relative_to(ROOT))
        beside = any(name.startswith(f"{folder}/") for folder in folders)
        of_pages = name.startswith("tests/docs/") and any(file.startswith(PAGES) for file in changed)
        if name in changed or beside or of_pages or reachable(used_by(test), below) & touched:
            chosen.append(name)
    structure = [str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "structure").glob("test_*.py")]
    return sorted({*chosen, *structure}) if changed else []


def _belongs(module: Path, file: Path) -> bool:
    if file.suffix in (".py", ".pyi"):
        return module == file.with_suffix(".py")
    return file.is_relative_to(SOURCE) and module.parent == file.parent


def changed_since(revision: str) -> list[str]:
    """Every file that differs from the revision, untracked ones included."""
    commands = (["git", "diff", "--name-only", revision], ["git", "ls-files", "--others", "--exclude-standard"])
    lines = [subprocess.run(c, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split() for c in commands]
    return sorted({name for part in lines for name in part})


if __name__ == "__main__":
    print("\n".join(affected(changed_since(*(sys.argv[1:] or ["HEAD"])))))
