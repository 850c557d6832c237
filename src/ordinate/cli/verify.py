"""`ordinate verify`: compare a checkpoint in Ordinate and in transformers."""

import json
import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.progress import console_progress
from ordinate.core.atomic_files import write_text
from ordinate.core.checks import need
from ordinate.core.output_folder import check_output_file
from ordinate.report.verification import number, verification_page

if TYPE_CHECKING:
    from ordinate.pretrained.verification.result import CheckResult, Verification

app = App(name="verify", help="Compare a published checkpoint in Ordinate and in transformers.")
STYLES = {"agrees": "green", "differs": "bold red", "failed": "bold red", "does not apply": "dim"}
PAGE = ".html"


@app.default
def verify(
    folder: Path,
    *,
    checks: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    tokens: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Compare a published checkpoint in Ordinate and in transformers: check by check.

    Exits with 0 if both agree in every check that applies, with 1 if they differ, with 2 if the checkpoint cannot be
    loaded. Nothing is downloaded.

    Parameters
    ----------
    folder
        Folder of a published checkpoint (config.json, safetensors) of a family in `ordinate list families`.
    checks
        Names of checks, separated by commas; by default all: outputs, left padding, right padding, packing, decoding,
        trained length, image sizes, gradients, bfloat16.
    tokens
        Length of the texts that the models read; by default 24, or as many as the model has positions.
    seed
        Seed of the inputs.
    out
        Also write a page to this file: .html.
    json_
        Print the result as JSON in place of the table.
    """
    need(
        out is None or out.suffix == PAGE,
        f"the page must be an {PAGE} file",
        f"got {out}",
        f"give a name that ends in {PAGE}",
    )
    if out is not None:
        check_output_file(out, "--out")
    from ordinate.pretrained.verification.verify import verify as compare

    names = [name.strip() for part in checks for name in part.split(",")]
    with closing(console_progress(SafeConsole(stderr=True))) as display:
        found = compare(folder, checks=names or None, tokens=tokens, seed=seed, on_progress=display.on_progress)
    result, console = found.to_dict(), SafeConsole()
    if json_:
        # JSON has no infinity
        sys.stdout.write(json.dumps(_finite(result), indent=1) + "\n")
    else:
        _print(console, found)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        page = verification_page(result, shlex.join(["ordinate", *sys.argv[1:]]))
        write_text(out, page)
        (SafeConsole(stderr=True) if json_ else console).print(f"page: {out}", soft_wrap=True)
    return 0 if found.agrees else 1


def _print(console: SafeConsole, found: "Verification") -> None:
    console.print(Text(found.answer, style="bold green" if found.agrees else "bold red"), soft_wrap=True)
    console.print(f"{found.architecture}, {found.parameters:,} parameters", style="dim")
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("result", no_wrap=True)
    for name in ("error", "tolerance", "largest"):
        table.add_column(name, justify="right", no_wrap=True)
    for check in found.checks:
        worst = check.worst
        numbers = (worst.error, check.tolerance, worst.largest) if worst else (None,) * 3
        state = Text(check.state, style=STYLES[check.state])
        table.add_row(check.name, state, *map(number, numbers))
    console.print_whole(table)
    console.print("error: relative, L2; largest: largest absolute difference of two numbers", style="dim")
    for check in found.checks:
        if told := _told(check):
            console.print(
                Text(f"{check.name}: {told}", style="" if check.state == "differs" else "dim"), soft_wrap=True
            )


def _told(check: "CheckResult") -> str:
    """Return what differs, why a check does not apply, or what else is to be known; empty: nothing."""
    found = [f"{check.worst.between}; tolerance: {check.basis}"] if check.state == "differs" and check.worst else []
    return "; ".join([*found, check.note] if check.note else found)


def _finite(value: object) -> object:
    """Return a value with its infinite numbers as text."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value
