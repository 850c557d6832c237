"""`ordinate list`: schemes, mixers, backends, corpora and the other members of each package."""

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ordinate.cli.plain_text import write_line, write_table
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

# models of which the part that is of a family is read
WRAPPERS = ("pretrained.wrappers", "pretrained._wrapper", "Wrapper")
COLUMNS: dict[Kind, tuple[str, ...]] = {"schemes": ("enters at",), "mixers": ("direction", "default scheme")}


def show_list(kind: Kind = "schemes") -> int:
    """List the members of a kind; schemes with the hooks they use, mixers with their direction and default scheme.

    Members of installed packages are listed with the name of their package; families with the models of texts and
    images whose language model is of one of them.

    Parameters
    ----------
    kind
        The kind to list.
    """
    names = catalog.names(f"ordinate.{CONTRACTS[kind][0]}")
    write_table(("name", *COLUMNS.get(kind, ()), "description"), ((name, *_cells(kind, name)) for name in names))
    if kind == "families":
        inner = ((name, _summary(WRAPPERS, name)) for name in catalog.names(f"ordinate.{WRAPPERS[0]}"))
        write_line()
        write_table(("of texts and images", "description (the language model is read)"), inner)
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


def _member(contract: tuple[str, str, str], name: str) -> type[Any]:
    package, module, base = contract
    return catalog.load(f"ordinate.{package}", getattr(import_module(f"ordinate.{module}"), base), name)


def _summary(contract: tuple[str, str, str], name: str) -> str:
    origin = catalog.origin(f"ordinate.{contract[0]}", name)
    first = (inspect.getdoc(_member(contract, name)) or "").partition("\n")[0]
    return f"{first} (of {origin})" if origin else first


def _cells(kind: Kind, name: str) -> list[str]:
    member, summary = _member(CONTRACTS[kind], name), _summary(CONTRACTS[kind], name)
    if kind == "schemes":
        return [entry_points(member), summary]
    return [direction(member), member.default_scheme, summary] if kind == "mixers" else [summary]
