"""`ordinate explore`: write and open the explorer, one offline page in which trained models run live."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ordinate.cli.console import SafeConsole
from ordinate.core.output_folder import check_output_file

if TYPE_CHECKING:
    from ordinate.explorer.packing import PackedModel

app = App(name="explore", help="Open a page in which small trained models run live.")


@app.default
def explore(
    model: Path | None = None,
    *,
    out: Path | None = None,
    open: Annotated[bool, Parameter(negative="--no-open", show_default=False)] = True,
) -> int:
    """Write the explorer and open it: questions about position, each with an answer and something to move.

    One HTML file, under 4 MB, that needs no network.

    Parameters
    ----------
    model
        Folder of a small decoder to show beside the six: your own, as printed by `ordinate train`, or a published
        checkpoint with its tokenizer.json.
    out
        The file. Default: explorer.html, with a model runs/explorer-NAME.html.
    open
        Open it in the browser, as it is by default.
    """
    from ordinate.core.atomic_files import write_text
    from ordinate.explorer.page import explorer_page

    path = out or Path("explorer.html" if model is None else f"runs/explorer-{model.resolve().name}.html")
    check_output_file(path, "--out")
    own = [] if model is None else [_own(model)]
    page = explorer_page(own)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    SafeConsole().print(f"page: {path} ({len(page.encode()) / 1e6:.1f} MB)", soft_wrap=True, markup=False)
    if open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def _own(folder: Path) -> "PackedModel":
    from ordinate.explorer.own_model import read_own_model

    return read_own_model(folder)
