"""The rules that the explorer's JavaScript keeps, as far as a program can check them without a JavaScript tool."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "ordinate" / "explorer" / "js"
MODULES = sorted(ROOT.rglob("*.js"))
IMPORT = re.compile(r'^import \{(.*)\} from ".*";$', re.MULTILINE)
# what has no place in a page that reads text from others, or is left from looking for a defect
FORBIDDEN = r"\bvar\b(?!\()|[^=!]==[^=]|!=[^=]|\bconsole\.|\bdebugger\b"
FORBIDDEN += r"|innerHTML|outerHTML|insertAdjacentHTML|document\.write"
FORBIDDEN += r"|\beval\b|new Function|\bfetch\(|\bXMLHttpRequest\b|localStorage|sessionStorage"
NAMED = re.compile(r"^(?:export )?(?:async )?(?:function\*?|const|class) (\w+)", re.MULTILINE)


def code(text):
    """A module without comments."""
    return re.sub(r"/\*.*?\*/|^\s*//[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_is_formatted_and_uses_what_it_names(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert text.startswith("/**"), "it says first what it is"
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert len(lines) <= 250
    assert not [line for line in lines if line != line.rstrip() or "\t" in line]
    assert not [
        line for line in lines if (len(line) - len(line.lstrip(" "))) % 2 and not line.lstrip().startswith("*")
    ]
    assert not re.search(FORBIDDEN, code(text))
    names = [name.split(" as ")[-1].strip() for found in IMPORT.findall(text) for name in found.split(",")]
    assert names == list(dict.fromkeys(names))
    body = IMPORT.sub("", code(text))
    assert not [name for name in names if not re.search(rf"\b{name}\b", body)], "it uses what it imports"
    private = [name for name in NAMED.findall(text) if not re.search(rf"^export .*\b{name}\b", text, re.MULTILINE)]
    assert not [name for name in private if len(re.findall(rf"\b{name}\b", body)) < 2], "it uses what it defines"


def test_what_is_exported_is_used():
    texts = [path.read_text(encoding="utf-8") for path in MODULES]
    tests = [path.read_text(encoding="utf-8") for path in (ROOT.parents[3] / "tests" / "explorer").rglob("*.mjs")]
    lists = [found for text in texts + tests for found in IMPORT.findall(text)]
    # what `explorer/page.py` and `explorer/notebook.py` import
    used = {"fields", "render", "start", "serve", "mount"}
    used |= {name.split(" as ")[0].strip() for one in lists for name in one.split(",")}
    for text in texts:
        own = re.findall(r"^export (?:async )?(?:function\*?|const|class) (\w+)", text, re.MULTILINE)
        assert not [name for name in own if name not in used and len(re.findall(rf"\b{name}\b", code(text))) < 2]
