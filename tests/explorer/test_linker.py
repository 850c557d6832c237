import shutil
import subprocess

import pytest

from ordinate.explorer.linker import link


def linked(**modules):
    """Link modules given by name, main first."""
    texts = {f"{name}.js": text for name, text in modules.items()}
    return link("main.js", texts.__getitem__)


def test_a_module_comes_after_what_it_imports_and_each_once():
    script = linked(
        main='import {b} from "./b.js";\nimport {\n  c as d,\n} from "./c.js";\nb(d);',
        b='import {c} from "./c.js";\nexport function b(x) { return x + c; }',
        c="export const c = 1;",
    )
    places = [script.index(f'modules["{name}.js"] =') for name in ["c", "b", "main"]]
    assert places == sorted(places)
    assert script.count('modules["c.js"] =') == 1
    assert "const {c: d} = modules" in script
    assert "export" not in script


def test_paths_are_relative_to_the_module():
    texts = {
        "panels/a.js": 'import {x} from "../core/x.js";',
        "core/x.js": 'import {y} from "./y.js";\nexport const x = y;',
        "core/y.js": "export const y = 2;",
    }
    assert 'modules["core/y.js"]' in link("panels/a.js", texts.__getitem__)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"main": 'import x from "./x.js";'}, r"an import must be of the form .*main\.js:1; write it so"),
        ({"main": "import {\n  x,\n  y\n"}, r"got 'import \{ x, y' in main\.js:1"),
        ({"main": 'import {x} from "https://a.b/x.js";'}, "an import must be of the form"),
        ({"main": "\nexport default 1;"}, r"an export must be of a function, const or class; got .* in main\.js:2"),
        ({"main": 'import {z} from "./x.js";', "x": "export const x = 1;"}, r"x\.js has no z \(main\.js:1\)"),
        (
            {"main": 'import {x} from "./x.js";', "x": 'import {m} from "./main.js";\nexport const x = 1;'},
            r"modules must not import each other in a circle; got main\.js -> x\.js -> main\.js",
        ),
        ({"main": 'const a = "</SCRIPT>";'}, "must not contain '</script'"),
        ({"main": 'const a = "<!-- ";'}, "must not contain '<!--'"),
    ],
)
def test_what_is_not_read_is_refused_with_file_and_line(modules, message):
    with pytest.raises(ValueError, match=message):
        linked(**modules)


@pytest.mark.extended
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_linked_script_runs():
    script = linked(
        main='import {Sum} from "./b.js";\nconsole.log(new Sum().of(2));',
        b='import {one} from "./c.js";\nexport class Sum { of(x) { return x + one(); } }',
        c="export function one() { return 1; }",
    )
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3"
