"""Write the tables of docs/mixers.md from the classes and the pages of the mixers: `python .ci/mixers.py`."""

import inspect
import re
from pathlib import Path
from typing import Any

from ordinate import catalog
from ordinate.mixer import BEFORE_THE_LAYERS, Mixer
from ordinate.scheme import PLACES

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "mixers.md"
SIZES = {"width": 32, "heads": 4, "kv_heads": 4, "head_width": 8, "layers": 2, "layer": 0, "max_length": 64}


def link(name: str) -> str:
    """The name, which leads to its page."""
    return f"[{name}](mixers/{name}.md)"


def sentence(kind: type[Mixer[Any]]) -> str:
    """What a newcomer is told first."""
    return (inspect.getdoc(kind) or "").splitlines()[0]


def forms(kind: type[Mixer[Any]]) -> list[str]:
    """What it can do, and what it needs."""
    born = kind(**catalog.bind(kind, {}, SIZES))
    causal = "yes" if kind.causal and born.exact_causal else "nearly" if kind.causal else "no"
    own = kind.honours - BEFORE_THE_LAYERS
    hooks = ", ".join(PLACES[name] for name in PLACES if name in own) or "none"
    if own == set(PLACES) - BEFORE_THE_LAYERS:
        hooks = "all"
    can = [kind.bidirectional, kind.causal and born.streams, not kind.equivariant, born.max_length is None]
    usual = f"[{kind.usual_scheme}](schemes/{kind.usual_scheme}.md)"
    return [causal, *("yes" if x else "no" for x in can), hooks, usual]


def costs(name: str) -> list[str]:
    """Time, memory and state, as the table of its page says."""
    page = (DOCS / "mixers" / f"{name}.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|(.*)\|\n\|[-| ]+\|\n\|(.*)\|$", page, re.MULTILINE)
    for heading, row in tables:
        cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (heading, row)), strict=True))
        if {"time", "memory", "state"} <= set(cells):
            return [cells[column] for column in ("time", "memory", "state")]
    raise SystemExit(f"docs/mixers/{name}.md needs a table of one row with the columns time, memory, state")


def table(heading: list[str], rows: list[list[str]]) -> str:
    """Lines of markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *rows))


def tables() -> dict[str, str]:
    """Each generated part of the page, by its name."""
    kinds = {name: catalog.load("ordinate.mixers", Mixer, name) for name in catalog.names("ordinate.mixers")}
    able = ["causal", "both sides", "streams", "knows order", "any length", "hooks", "usual scheme"]
    return {
        "ideas": table(["mixer", "what it does"], [[link(name), sentence(kind)] for name, kind in kinds.items()]),
        "forms": table(["mixer", *able], [[link(name), *forms(kind)] for name, kind in kinds.items()]),
        "costs": table(["mixer", "time", "memory", "state"], [[link(name), *costs(name)] for name in kinds]),
    }


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with each generated part in its place."""
    for name, text in parts.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not (begin and end):
            raise SystemExit(f"{PAGE} needs the lines <!-- {name} --> and <!-- end of {name} -->")
        page = f"{before}{begin}\n{text}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
