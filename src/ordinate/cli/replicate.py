"""`ordinate replicate`: measure published claims about position again."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App
from rich.table import Table
from rich.text import Text

from ordinate.cli.console import SafeConsole
from ordinate.cli.progress import console_progress
from ordinate.core.checks import need_seed
from ordinate.core.output_folder import check_output_folder

if TYPE_CHECKING:
    from ordinate.core.progress import OnProgress
    from ordinate.replications.replication import Replication
    from ordinate.replications.result import ReplicationResult

app = App(name="replicate", help="Measure published claims about position again.")
STYLES = {"agrees": "green", "does not": "bold red", "cannot be told": "yellow"}


@app.default
def replicate(
    name: str = "",
    model: Path | None = None,
    *,
    text: str | None = None,
    out: Path = Path("runs/replications"),
    trained: Path = Path("runs/replications/trained"),
    train: bool = False,
    seed: int = 0,
) -> int:
    """Measure the claims of a paper about position again, and judge each by criteria declared beforehand.

    Each claim gets a verdict: agrees, does not, or cannot be told. Exits with 1 if a control was not recovered.

    Parameters
    ----------
    name
        Name of a replication, several separated by commas, or all. Without it they are listed.
    model
        Folder of a model, for the claims that need one: an Ordinate model or a transformers checkpoint. With all,
        only replications with such a claim are run.
    text
        Texts for the model: a corpus by name (see `ordinate list corpora`), or a file or folder. Default: for a model
        in the folder of its study the text of that study, for any other of Ordinate's stdlib (Python source), for all
        others docs (English prose).
    out
        Folder for the results, one JSON file each.
    trained
        Folder with what was measured on the small trained models of claims about training, one JSON file each.
    train
        Train the models that this folder lacks, with fixed seeds: minutes to hours. Interrupted, the same command
        goes on.
    seed
        Random seed.
    """
    from ordinate.replications.runner import run, save, selected, with_model, with_trained

    console = SafeConsole()
    if not name:
        return _list(console)
    need_seed(seed)
    check_output_folder(out, (".json",))
    check_output_folder(trained, (".json",), "--trained")
    members = selected([part.strip() for part in name.split(",")], model is not None)
    base, results = with_model(model, text, seed), []
    folder = out if base.model is None else out / base.model.info.name
    check_output_folder(folder, (".json",))
    folder.mkdir(parents=True, exist_ok=True)
    with closing(console_progress(SafeConsole(stderr=True))) as display:
        for each, member in members.items():
            if train:
                _train(each, member, trained, display.on_progress)
            subject = with_trained(base, member, each, trained)
            results.append(run(member, each, subject, display.on_progress))
            save(folder / f"{each}.json", results[-1])
    for result in results:
        _print(console, result)
    console.print(f"results: {folder}", markup=False, soft_wrap=True)
    return 0 if all(control.recovered for result in results for control in result.controls) else 1


def _train(name: str, member: "Replication", folder: Path, on_progress: "OnProgress") -> None:
    """Train the models of a replication that has any."""
    from ordinate.core.progress import for_item
    from ordinate.replications.runner import trained_path
    from ordinate.replications.trained import TrainedReplication
    from ordinate.replications.training import train_models

    if isinstance(member, TrainedReplication):
        train_models(member, trained_path(folder, name), for_item(on_progress, name))


def _list(console: SafeConsole) -> int:
    from ordinate.replications.runner import ALL, selected

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "paper", "claims", "with a model", "by training"):
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    for name, member in selected([ALL]).items():
        more = sum(claim.needs == "model" for claim in member.claims)
        paper = f"{member.paper.authors} {member.paper.year}, {member.paper.title}"
        taught = sum(claim.needs == "training" for claim in member.claims)
        rest = len(member.claims) - more - taught
        table.add_row(name, paper, str(rest or ""), str(more or ""), str(taught or ""))
    console.print(table)
    console.print("run one by its name, or all: ordinate replicate su", style="dim")
    return 0


def _print(console: SafeConsole, result: "ReplicationResult") -> None:
    from ordinate.core.finding import format_number

    paper = result.paper
    console.print(Text.assemble((f"{result.name}: ", "bold"), result.headline), soft_wrap=True)
    console.print(
        f"{paper.authors} {paper.year}, {paper.title}, {paper.url}", style="dim", markup=False, soft_wrap=True
    )
    if result.texts:
        console.print(f"texts: {result.texts}", style="dim", markup=False, soft_wrap=True)
    for one in result.claims:
        console.print(Text.assemble((one.verdict, STYLES[one.verdict]), f"  {one.claim.text}"), soft_wrap=True)
        printed = f"; printed: {one.claim.printed}" if one.claim.printed else ""
        console.print(f"    {one.claim.quantity}{printed}", style="dim", markup=False, soft_wrap=True)
        console.print(f"    {one.ours.described}; {one.reason}", markup=False, soft_wrap=True)
    for control in result.controls:
        if not control.recovered:
            found = f"{format_number(control.got)} in place of {format_number(control.expected)}"
            console.print(f"    control not recovered, {control.name}: {found}", style="bold red", soft_wrap=True)
    for claim, reason in result.not_measured.items():
        console.print(f"    not measured, {claim}: {reason}", style="dim", markup=False, soft_wrap=True)
