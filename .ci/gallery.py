"""Draw each scheme once, and write docs/gallery.md: one picture, one formula, when to use it, who uses it.

`python .ci/gallery.py` writes the page and the pictures, as `./dev pages` does. All of it comes from the members: the
picture from the scheme itself, the words and the formula from its page, the models from the parity tests.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from generated_parts import Pages, write

from ordinate.core import catalog
from ordinate.core.html_display import standalone
from ordinate.schemes._display import plot_svg
from ordinate.schemes._plot_data import LinePlotData, scheme_plots
from ordinate.schemes._plots import build_scheme

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE, FOLDER = DOCS / "gallery.md", DOCS / "gallery"
RESULTS = ROOT / "tests" / "parity" / "results.json"
# numbers of a picture may differ by so much where processors round differently [pixels, or in the last digit shown]
TOLERANCE = 0.25
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# most models named
MOST = 8
# remapping positions changes nothing that a single query shows
TOGETHER = {"none": "none+rope/none"}

INTRODUCTION = """# Gallery

Every positional scheme: what it does to identical tokens, its formula, when to use it, and which models of
transformers compute the same, by the [parity tests](parity.md). Curves show the newest query over the offset to its
keys, maps rows and columns; learned parameters have their initial values. In a notebook
[every scheme shows itself](notebooks.md), with the values that it has learned.
"""


def drawn(name: str) -> str:
    """Return the picture of a scheme: its first curve that is not flat, or else its first map."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plots = scheme_plots(build_scheme(TOGETHER.get(name, name)))
    curves = [plot for plot in plots if isinstance(plot, LinePlotData)]
    return standalone(plot_svg(([plot for plot in curves if varies(plot)] + plots)[0]))


def varies(plot: LinePlotData) -> bool:
    """Whether any of the curves is more than a constant."""
    return any(max(line) - min(line) > 1e-6 * max(map(abs, line)) for line in plot.lines.values())


def alike(old: str, new: str) -> bool:
    """Whether two pictures are the same but for what processors round differently."""
    if NUMBER.split(old) != NUMBER.split(new):
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(abs(float(a) - float(b)) <= TOLERANCE * max(1, abs(float(a)) / 100) for a, b in pairs)


def paragraph(page: str, begin: str) -> str:
    """Return the paragraph that begins with these words, without them, on one line."""
    found = re.search(rf"^{re.escape(begin)}(.+?)(?:\n\n|\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"a page of a scheme needs a paragraph that begins with {begin!r}")
    return " ".join(found[1].split())


def first_sentence(text: str) -> str:
    """Return the text up to its first full stop or colon that ends a clause, without links."""
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text)
    sentence = re.split(r"(?<=[.])\s", plain)[0].strip()
    return sentence if sentence.endswith(".") else f"{sentence}."


def formula(page: str) -> str:
    """Return the first formula of a page: the first block below its heading, up to an empty line."""
    _, _, rest = page.partition("## Formula")
    block = re.search(r"```\n(.+?)\n(?:```|\n)", rest, re.DOTALL)
    return block[1] if block else ""


def models(name: str) -> list[str]:
    """Return the models of transformers whose code gave the same numbers in a parity test."""
    found = set()
    for row in json.loads(RESULTS.read_text(encoding="utf-8"))["equal"]:
        parts = row["oracle"].partition(":")[0].split(".")
        if row["scheme"].partition(":")[0] == name and parts[:2] == ["transformers", "models"]:
            found.add(parts[2])
    return sorted(found)


def entry(name: str) -> Iterator[str]:
    """Yield the lines of the page about one scheme."""
    page = (DOCS / "schemes" / f"{name}.md").read_text(encoding="utf-8")
    yield f"\n## {name}\n"
    yield f"{first_sentence(paragraph(page, f'# {name}' + chr(10) + chr(10)))} [More](schemes/{name}.md)\n"
    yield f"![{name}](gallery/{name}.svg)\n"
    written = formula(page)
    if written:
        yield f"```\n{written}\n```\n"
    yield f"**When to use it.** {first_sentence(paragraph(page, '**When to use it.** '))}\n"
    named = models(name)
    if named:
        more = f" and {len(named) - MOST} more" if len(named) > MOST else ""
        yield f"**In transformers**: {', '.join(named[:MOST])}{more}.\n"


def pages() -> Pages:
    """Return the page and the pictures; a picture that differs by rounding only is the committed one."""
    found: Pages = {}
    names = catalog.names("ordinate.schemes")
    for name in names:
        path, new = FOLDER / f"{name}.svg", drawn(name)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        found[path] = old if alike(old, new) else new
    lines = [line for name in names for line in entry(name)]
    return found | {PAGE: INTRODUCTION + "\n".join(lines).rstrip() + "\n"}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write(pages())
