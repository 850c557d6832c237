"""`ordinate list`: schemes, mixers, backends, corpora and the other members of each package."""

import inspect
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App
from rich.table import Table

from ordinate.cli.console import SafeConsole
from ordinate.core import catalog

if TYPE_CHECKING:
    from ordinate.mixers._mixer import Mixer

Kind = Literal[
    "schemes",
    "spectra",
    "mixers",
    "backends",
    "corpora",
    "tokenizers",
    "tasks",
    "families",
    "probes",
    "replications",
]
# the package of each kind's members, the module of their contract, and the contract
CONTRACTS: dict[Kind, tuple[str, str, str]] = {
    "schemes": ("schemes", "schemes._scheme", "Scheme"),
    "spectra": ("schemes.spectra", "schemes.spectra._spectrum", "Spectrum"),
    "mixers": ("mixers", "mixers._mixer", "Mixer"),
    "backends": ("attention.backends", "attention._backend", "Backend"),
    "corpora": ("data.corpora", "data.corpus", "Corpus"),
    "tokenizers": ("data.tokenizers", "data.tokenizer", "Tokenizer"),
    "tasks": ("data.tasks", "data.task", "Task"),
    "families": ("pretrained.families", "pretrained._family", "Family"),
    "probes": ("probing.probes", "probing._probe", "Probe"),
    "replications": ("replications.papers", "replications.replication", "Replication"),
}

COLUMNS: dict[Kind, tuple[str, ...]] = {"schemes": ("enters at",), "mixers": ("direction", "default scheme")}

app = App(name="list", help="List schemes, mixers, tasks, attention backends, corpora.")


@app.default
def show_list(kind: Kind = "schemes") -> int:
    """List the members of a kind; schemes with the hooks they use, mixers with their direction and default scheme.

    Parameters
    ----------
    kind
        The kind to list.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for column in COLUMNS.get(kind, ()):
        table.add_column(column)
    table.add_column("description")
    for name in catalog.names(f"ordinate.{CONTRACTS[kind][0]}"):
        table.add_row(name, *_cells(kind, name))
    SafeConsole().print(table)
    return 0


def entry_points(member: type) -> str:
    """Where a scheme enters the model, from the hooks that it overrides."""
    from ordinate.schemes._scheme import HOOK_TARGETS, Scheme

    used = [place for hook, place in HOOK_TARGETS.items() if getattr(member, hook) is not getattr(Scheme, hook)]
    return ", ".join(used) or "nowhere"


def direction(member: "type[Mixer[Any]]") -> str:
    """Whether a mixer can be causal, bidirectional, or either."""
    if member.causal and member.bidirectional:
        return "either"
    return "causal" if member.causal else "bidirectional"


def _cells(kind: Kind, name: str) -> list[str]:
    from importlib import import_module

    package, module, contract = CONTRACTS[kind]
    member = catalog.load(f"ordinate.{package}", getattr(import_module(f"ordinate.{module}"), contract), name)
    summary = (inspect.getdoc(member) or "").splitlines()[0]
    if kind == "schemes":
        return [entry_points(member), summary]
    return [direction(member), member.default_scheme, summary] if kind == "mixers" else [summary]
