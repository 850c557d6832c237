"""Write the times by sequence length into the pages of block_linformer and reformer: `python .ci/fewer_pairs.py`."""

from typing import Any

from generated_parts import Pages, write
from speeds import DOCS, newest, text

NAMES = ("block_linformer", "reformer")
# each softmax attention that they are compared with, and its title
BASES = {"softmax by sdpa": "PyTorch's softmax attention", "softmax": "Ordinate's softmax attention"}


def table(name: str, results: dict[str, Any]) -> list[list[str]]:
    """A row for each length: milliseconds of the mixer, and its ratio to both softmax attentions."""
    rows = [["pass", "tokens", "ms", *(f"of {title}" for title in BASES.values())]]
    for way, lengths in results.items():
        for tokens, found in lengths.items():
            own = found[name]["seconds"]
            ratios = (f"{own / found[base]['seconds']:.2f}" for base in BASES)
            rows.append([way, tokens, f"{1e3 * own:.0f}", *ratios])
    return rows


def pages() -> Pages:
    """Return both pages with their tables."""
    path, about = newest("fewer_pairs")
    tables = {name: text("fewer_pairs", path, about, table(name, about["results"])) for name in NAMES}
    return {DOCS / "mixers" / f"{name}.md": {"by length": found} for name, found in tables.items()}


if __name__ == "__main__":
    write(pages())
