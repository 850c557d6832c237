"""Join ES modules into one script, so that a page can run them from disk: no build tool, no request.

Of the language's module syntax a small part is read, and everything else is an error:
`import {a, b as c} from "./x.js";`, on one line or several, and `export function`, `export async function`,
`export const`, `export class`. Each module becomes a function that returns what it exports, after those that it
imports.
"""

import posixpath
import re
from collections.abc import Callable, Iterator

IMPORT = re.compile(r'import \{([\w\s,]*)\} from "(\.{1,2}/[\w./-]+\.js)";')
EXPORT = re.compile(r"export (?:async function|function\*?|const|class) (\w+)")
NAME = re.compile(r"(\w+)(?: as (\w+))?")


def link(entry: str, read: Callable[[str], str]) -> str:
    """Return one script that runs a module and all that it imports.

    Args:
        entry: path of the first module.
        read: returns the text of a module by its path, "core/erf.js".

    Raises:
        ValueError: a statement that is not read, a name that is not exported, a circle; with file and line.
    """
    script = f"{_joined(entry, read)};\n"
    # a script element ends at the first of these, wherever it stands
    for text in ("</script", "<!--"):
        if text in script.lower():
            raise ValueError(f"a script of the page must not contain {text!r}; it does; write it in two parts")
    return script


def link_module(entry: str, read: Callable[[str], str], data: str) -> str:
    """Return one ES module whose default export is `{render}` of a module, which is called with `data` besides.

    Args:
        entry: path of the first module, which exports `render`.
        read: returns the text of a module by its path.
        data: a JavaScript expression.

    Raises:
        ValueError: as `link`.
    """
    made = f"const {{render}} = {_joined(entry, read)};\nconst data = {data};\n"
    return f"{made}export default {{render: (given) => render({{...given, data}})}};\n"


def _joined(entry: str, read: Callable[[str], str]) -> str:
    """Return an expression that runs all modules, and is what the first exports."""
    bodies: dict[str, str] = {}
    exported: dict[str, list[str]] = {}
    _visit(entry, read, bodies, exported, ())
    modules = "".join(f"modules[{_quoted(path)}] = (() => {{\n{body}}})();\n" for path, body in bodies.items())
    return f'(() => {{\n"use strict";\nconst modules = {{}};\n{modules}return modules[{_quoted(entry)}];\n}})()'


def _visit(
    path: str,
    read: Callable[[str], str],
    bodies: dict[str, str],
    exported: dict[str, list[str]],
    above: tuple[str, ...],
) -> None:
    """Add a module after those that it imports."""
    if path in bodies:
        return
    if path in above:
        circle = " -> ".join([*above[above.index(path) :], path])
        raise ValueError(f"modules must not import each other in a circle; got {circle}; move what both need")
    lines, names = [], []
    for number, line in _statements(read(path)):
        where = f"{path}:{number}"
        if line.startswith("import"):
            line = _imported(line, where, path, read, bodies, exported, above)
        elif line.startswith("export"):
            found = EXPORT.match(line)
            if found is None:
                raise ValueError(f"an export must be of a function, const or class; got {line!r} in {where}; name it")
            names.append(found[1])
            line = line.removeprefix("export ")
        lines.append(line)
    bodies[path] = "\n".join([*lines, f"return {{{', '.join(names)}}};", ""])
    exported[path] = names


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 1, the lines of an import joined into one."""
    numbered = enumerate(text.splitlines(), 1)
    for number, line in numbered:
        while line.startswith("import") and not line.rstrip().endswith(";") and (more := next(numbered, None)):
            line = f"{line} {more[1].strip()}"
        yield number, line


def _imported(
    line: str,
    where: str,
    path: str,
    read: Callable[[str], str],
    bodies: dict[str, str],
    exported: dict[str, list[str]],
    above: tuple[str, ...],
) -> str:
    """Return what stands in place of an import, after visiting the module."""
    found = IMPORT.fullmatch(line.strip())
    if found is None:
        must = 'an import must be of the form import {a, b as c} from "./x.js";'
        raise ValueError(f"{must}; got {line!r} in {where}; write it so")
    other = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[2]))
    _visit(other, read, bodies, exported, (*above, path))
    taken = []
    for one, alias in NAME.findall(found[1]):
        if one not in exported[other]:
            raise ValueError(f"an import must be of an exported name; {other} has no {one} ({where}); correct it")
        taken.append(f"{one}: {alias}" if alias else one)
    return f"const {{{', '.join(taken)}}} = modules[{_quoted(other)}];"


def _quoted(path: str) -> str:
    return '"' + path + '"'
