"""`ordinate list`: what there is."""

import inspect
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App
from rich.console import Console
from rich.table import Table

from ordinate import catalog

if TYPE_CHECKING:
    from ordinate.mixer import Mixer

Kind = Literal["schemes", "spectra", "mixers", "routes", "corpora", "tokenizers", "tasks", "families", "probes"]
CONTRACTS: dict[Kind, str] = {
    "schemes": "scheme.Scheme",
    "spectra": "spectrum.Spectrum",
    "mixers": "mixer.Mixer",
    "routes": "route.Route",
    "corpora": "corpus.Corpus",
    "tokenizers": "tokenizer.Tokenizer",
    "tasks": "task.Task",
    "families": "family.Family",
    "probes": "probe.Probe",
}

COLUMNS: dict[Kind, tuple[str, ...]] = {"schemes": ("enters at",), "mixers": ("reads", "usual scheme")}

app = App(name="list", help="List what there is: schemes, mixers, tasks, routes, corpora.")


@app.default
def show_list(kind: Kind = "schemes") -> int:
    """List the members of a kind: of schemes, where each enters; of mixers, how each reads and its usual scheme.

    Parameters
    ----------
    kind
        What to list.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for column in COLUMNS.get(kind, ()):
        table.add_column(column)
    table.add_column("what it does")
    for name in catalog.names(f"ordinate.{kind}"):
        table.add_row(name, *_cells(kind, name))
    Console(highlight=False).print(table)
    return 0


def places(member: type) -> str:
    """Where a scheme enters: read off the hooks that it overrides."""
    from ordinate.scheme import PLACES, Scheme

    used = [place for hook, place in PLACES.items() if getattr(member, hook) is not getattr(Scheme, hook)]
    return ", ".join(used) or "nowhere"


def reads(member: "type[Mixer[Any]]") -> str:
    """In which forms a mixer can be had: from left to right, from both sides, or as is wanted."""
    if member.causal and member.bidirectional:
        return "either way"
    return "left to right" if member.causal else "both sides"


def _cells(kind: Kind, name: str) -> list[str]:
    from importlib import import_module

    module, contract = CONTRACTS[kind].split(".")
    member = catalog.load(f"ordinate.{kind}", getattr(import_module(f"ordinate.{module}"), contract), name)
    summary = (inspect.getdoc(member) or "").splitlines()[0]
    if kind == "schemes":
        return [places(member), summary]
    return [reads(member), member.usual_scheme, summary] if kind == "mixers" else [summary]
