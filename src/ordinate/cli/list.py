"""`ordinate list`: schemes, mixers, backends, corpora and the other members of each package."""

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ordinate.cli.plain_text import write_table
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


def show_list(kind: Kind = "schemes") -> int:
    """List the members of a kind; schemes with the hooks they use, mixers with their direction and default scheme.

    Members of installed packages are listed with the name of their package.

    Parameters
    ----------
    kind
        The kind to list.
    """
    names = catalog.names(f"ordinate.{CONTRACTS[kind][0]}")
    write_table(("name", *COLUMNS.get(kind, ()), "description"), ((name, *_cells(kind, name)) for name in names))
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
    package, module, contract = CONTRACTS[kind]
    member = catalog.load(f"ordinate.{package}", getattr(import_module(f"ordinate.{module}"), contract), name)
    summary = (inspect.getdoc(member) or "").partition("\n")[0]
    origin = catalog.origin(f"ordinate.{package}", name)
    summary += f" (of {origin})" if origin else ""
    if kind == "schemes":
        return [entry_points(member), summary]
    return [direction(member), member.default_scheme, summary] if kind == "mixers" else [summary]
