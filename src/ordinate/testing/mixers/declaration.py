"""Docstring, declared properties and constructor of a mixer."""

import inspect

from ordinate.core import catalog
from ordinate.mixers._mixer import ALL_HOOKS
from ordinate.testing.case import SIZES, check_reset
from ordinate.testing.mixer import MixerCase


def its_docstring_is_complete(case: MixerCase) -> None:
    """The docstring has a summary sentence, a formula, and the sections Source and Departs."""
    text = inspect.getdoc(case.kind) if case.kind.__doc__ else None
    assert text, "it has no docstring"
    lines = text.splitlines()
    assert lines[0].strip().endswith("."), f"its first line is no sentence: {lines[0]!r}"
    for part in ("Source:", "Departs:"):
        assert part in text, f"its docstring has no section {part!r}"
    assert any(line.startswith("    ") and line.strip() for line in lines), "its docstring has no indented formula"


def it_declares_its_properties(case: MixerCase) -> None:
    """Supported hooks, equivariance and forms are declared, and the default scheme is supported."""
    kind = case.kind
    unknown = sorted(set(getattr(kind, "supported_hooks", {"nothing"})) - ALL_HOOKS)
    assert not unknown, f"it declares support for unknown hooks: {', '.join(unknown)}"
    assert isinstance(getattr(kind, "permutation_equivariant", None), bool), (
        "it does not declare permutation_equivariant"
    )
    assert kind.causal or kind.bidirectional, "it declares neither a causal nor a bidirectional form"
    kind.check_scheme(case.scheme())


def its_options_are_keywords(case: MixerCase) -> None:
    """All constructor arguments are keyword-only, since models bind sizes by name."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(case.kind).parameters.values()
    others = [parameter.name for parameter in parameters if parameter.kind in by_place]
    assert not others, f"its constructor takes {', '.join(others)} positionally; put a * before them"


def initialisation_is_deterministic(case: MixerCase) -> None:
    """Initialisation is deterministic: all random numbers come from PyTorch's generator."""
    first, second = case.mixer(), case.mixer()
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert one.equal(other), f"{name} differs between two instances from one seed"


def reset_parameters_gives_the_values_of_a_new_mixer(case: MixerCase) -> None:
    """After `reset_parameters` a mixer whose memory was empty has the parameters of a new one."""
    check_reset(lambda: case.kind(**catalog.bind(case.kind, case.options, {**SIZES, "layer": 1})))


def tokens_of_another_width_are_rejected(case: MixerCase) -> None:
    """Tokens of another width raise a ValueError that names it."""
    (where, *_) = case.geometries(3)
    message = None
    try:
        case.output(case.tokens(1, 3)[..., :31], where)
    except ValueError as error:
        message = str(error)
    assert message is not None, "it accepts 31 columns, built for 32"
    assert "31" in message, f"its error does not name the 31 columns: {message}"
