"""Write the generated pages and parts of pages of docs/, or check them: `python .ci/pages.py [--check]`.

Each script of SCRIPTS has a function `pages()`, which returns the parts of each page that it generates, from results
that are committed; tables and decisions of committed studies are compared too. Pictures are only checked:
`python .ci/pictures.py` draws them. Of contracts.py only the lists are included: its results take long to compute.
"""

import importlib
import runpy
import sys
from pathlib import Path

from generated_parts import ROOT, Pages, stale, write

SCRIPTS = (
    "answers",
    "attention_speeds",
    "baselines",
    "calibration",
    "canaries",
    "compared",
    "contracts",
    "explorer",
    "families",
    "fewer_pairs",
    "gallery",
    "gpu_code",
    "mixers",
    "notebooks",
    "over_training",
    "parity",
    "probe_calibration",
    "q_k_v",
    "questions",
    "refusals",
    "relations",
    "replications",
    "scale",
    "speeds",
    "studies",
    "transfer",
    "translation",
)


def every_page() -> Pages:
    """Generate all pages; several scripts may write parts of one page."""
    found: Pages = {}
    for script in SCRIPTS:
        for path, parts in importlib.import_module(script).pages().items():
            other = found.get(path, {})
            found[path] = parts if isinstance(parts, str) or isinstance(other, str) else other | parts
    bad_input = runpy.run_path(str(ROOT / "tests" / "bad_input" / "write_page.py"))
    return found | {bad_input["PAGE"]: bad_input["page"]()}


def main() -> None:
    """Write all pages; with --check only list stale pages and pictures, and exit with 1 if there are any."""
    # the scripts beside this one and the packages of the repository
    sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]
    pages = every_page()
    if "--check" not in sys.argv:
        return write(pages)
    old = stale(pages)
    for path in old:
        print(f"{path.relative_to(ROOT)} is stale: run python .ci/pages.py")
    drawn = importlib.import_module("pictures")
    pictures = drawn.stale(drawn.pictures())
    for path, reason in pictures.items():
        print(drawn.said(path, reason))
    sys.exit(1 if old or pictures else 0)


if __name__ == "__main__":
    main()
