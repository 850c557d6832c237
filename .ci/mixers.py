"""Generate the tables of docs/mixers.md from the classes and pages of the mixers: `python .ci/mixers.py`."""

import inspect
import re
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

from ordinate.core import catalog
from ordinate.mixers._mixer import MODEL_LEVEL_HOOKS, Mixer
from ordinate.schemes._scheme import HOOK_TARGETS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "mixers.md"
SIZES = {"width": 32, "heads": 4, "kv_heads": 4, "head_width": 8, "layers": 2, "layer": 0, "max_length": 64}


def link(name: str) -> str:
    """Name of a mixer, linked to its page."""
    return f"[{name}](mixers/{name}.md)"


def sentence(kind: type[Mixer[Any]]) -> str:
    """First line of the docstring."""
    return (inspect.getdoc(kind) or "").splitlines()[0]


def forms(kind: type[Mixer[Any]]) -> list[str]:
    """Capabilities and requirements of a mixer, as cells of the table."""
    built = kind(**catalog.bind(kind, {}, SIZES))
    causal = "yes" if kind.causal and built.strictly_causal else "nearly" if kind.causal else "no"
    own = kind.supported_hooks - MODEL_LEVEL_HOOKS
    hooks = ", ".join(HOOK_TARGETS[name] for name in HOOK_TARGETS if name in own) or "none"
    # softmax also has `bind_projections`, which is no hook of its own
    if own >= set(HOOK_TARGETS) - MODEL_LEVEL_HOOKS:
        hooks = "all"
    can = [
        kind.bidirectional,
        kind.causal and built.supports_cache,
        not kind.permutation_equivariant,
        built.max_length is None,
    ]
    usual = f"[{kind.default_scheme}](schemes/{kind.default_scheme}.md)"
    return [causal, *("yes" if x else "no" for x in can), hooks, usual]


def costs(name: str) -> list[str]:
    """Time, memory and state, from the table on the page of the mixer."""
    page = (DOCS / "mixers" / f"{name}.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|(.*)\|\n\|[-| ]+\|\n\|(.*)\|$", page, re.MULTILINE)
    for heading, row in tables:
        cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (heading, row)), strict=True))
        if {"time", "memory", "state"} <= set(cells):
            return [cells[column] for column in ("time", "memory", "state")]
    raise SystemExit(f"docs/mixers/{name}.md needs a table of one row with the columns time, memory, state")


def table(heading: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *rows))


def tables() -> dict[str, str]:
    """Generated parts of the page, by name."""
    kinds = {name: catalog.load("ordinate.mixers", Mixer, name) for name in catalog.names("ordinate.mixers")}
    able = ["causal", "bidirectional", "incremental", "order-aware", "any length", "hooks", "default scheme"]
    return {
        "ideas": table(["mixer", "description"], [[link(name), sentence(kind)] for name, kind in kinds.items()]),
        "forms": table(["mixer", *able], [[link(name), *forms(kind)] for name, kind in kinds.items()]),
        "costs": table(["mixer", "time", "memory", "state"], [[link(name), *costs(name)] for name in kinds]),
    }


def pages() -> Pages:
    """Return the page with its generated parts."""
    return {PAGE: tables()}


if __name__ == "__main__":
    write(pages())
