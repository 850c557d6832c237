"""Make the notebooks of notebooks/ from the pages of docs/notebooks: `python .ci/notebooks.py [--execute FOLDER]`.

A Python example of a page is a cell of code, what lies between is a cell of text. Outputs are not kept, so that a
notebook is reviewed as its page. With --execute they are executed, and written with their outputs to another folder
(needs nbclient and ipykernel).
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

ROOT = Path(__file__).parents[1]
SOURCES, FOLDER = ROOT / "docs" / "notebooks", ROOT / "notebooks"
# longest time of a cell [seconds]
PATIENCE = 300
CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)]+)\)")


def cells(page: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each cell of a page."""
    for index, part in enumerate(CODE.split(page)):
        text = part.strip("\n")
        if text:
            yield ("code" if index % 2 else "markdown"), text


def notebook(page: str) -> dict[str, Any]:
    """Return a page as a notebook without outputs."""
    made = []
    for kind, text in cells(page):
        # names of cells must not change where their text does not
        name = hashlib.sha256(text.encode()).hexdigest()[:8]
        cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        else:
            text = LINK.sub(lambda link: f"]({moved(link[1])})", text)
        made.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def moved(link: str) -> str:
    """Return a link of a page as seen from the folder of the notebooks."""
    path, hash_, heading = link.partition("#")
    if (SOURCES / path).parent.resolve() == SOURCES.resolve():
        return f"{Path(path).stem}.ipynb{hash_}{heading}"
    return f"../docs/{path.removeprefix('../')}{hash_}{heading}"


def pages() -> Pages:
    """Return each notebook as text."""
    return {
        FOLDER / f"{source.stem}.ipynb": json.dumps(notebook(source.read_text(encoding="utf-8")), indent=1) + "\n"
        for source in sorted(SOURCES.glob("*.md"))
    }


def executed(path: Path, folder: Path) -> Any:
    """Execute a notebook in a folder; an error of a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    made = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(made, timeout=PATIENCE, kernel_name="python3", resources=place).execute()
    return made


def main() -> None:
    """Write the notebooks; execute them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--execute", type=Path, metavar="FOLDER", help="write them with their outputs to this folder")
    folder = parser.parse_args().execute
    write(pages())
    if folder is not None:
        import nbformat

        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(FOLDER.glob("*.ipynb")):
            nbformat.write(executed(path, folder), folder / path.name)
            print(folder / path.name)


if __name__ == "__main__":
    main()
