"""What the explorer's JavaScript keeps beside its linter (.oxlintrc.json) and formatter (.oxfmtrc.json)."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "ordinate" / "explorer" / "js"
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.js")}
IMPORT = re.compile(r"^import \{([^}]*)\} from", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function\*?|const|class) (\w+)", re.MULTILINE)


def test_a_module_says_first_what_it_is_and_is_one_subject():
    assert not [name for name, text in TEXTS.items() if not text.startswith("/**")]
    assert not [name for name, text in TEXTS.items() if len(text.splitlines()) > 400]


def test_what_is_exported_is_used():
    tests = [path.read_text(encoding="utf-8") for path in (ROOT.parents[3] / "tests" / "explorer").rglob("*.mjs")]
    # what `explorer/page.py` and `explorer/notebook.py` import
    used = {"fields", "render", "start", "serve", "mount"}
    for text in [*TEXTS.values(), *tests]:
        used |= {name.split(" as ")[0].strip() for names in IMPORT.findall(text) for name in names.split(",")}
    unused = {
        (path, name)
        for path, text in TEXTS.items()
        for name in EXPORT.findall(text)
        if name not in used and len(re.findall(rf"\b{name}\b", text)) < 2
    }
    assert not unused
