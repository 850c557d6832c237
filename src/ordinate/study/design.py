"""From what a person says to the plan of a study: an option with several values is a factor of a grid."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_origin

from pydantic import Field, create_model

from ordinate.checks import need, need_known
from ordinate.study.fields import idle
from ordinate.study.options import Options
from ordinate.study.plan import Plan
from ordinate.study.run import Cell, Frozen, described

# how often each is trained is no factor: all are trained as often
ONE = frozenset({"seeds", "trials", "trial_share", "threads", "checkpoint_every"})
EXCEPTIONS = "cells"
Values = dict[str, Any]
Preset = Callable[[str | None, str | None], Mapping[str, Any]]


def _several(name: str) -> tuple[Any, Any]:
    """The type and the default of a field of which several values may be given."""
    field = Options.model_fields[name]
    kind: Any = field.annotation
    if field.metadata:
        kind = Annotated[kind, *field.metadata]  # pyrefly: ignore[not-a-type]
    words: Values = {"description": field.description, "alias": field.alias}
    if not varies(name):
        return kind, Field(field.default, **words)
    return tuple.__class_getitem__((kind, ...)), Field((field.default,), min_length=1, **words)


def varies(name: str) -> bool:
    """Whether a field can be a factor: it has one value, and is not about how often something is done."""
    listed = any(get_origin(kind) is tuple for kind in _kinds(Options.model_fields[name].annotation))
    return name not in ONE and not listed


def _kinds(annotation: Any) -> Sequence[Any]:
    return getattr(annotation, "__args__", ()) if get_origin(annotation) is not tuple else (annotation,)


_FIELDS: Any = {name: _several(name) for name in Options.model_fields}
Wish: type[Frozen] = create_model("Plan", __base__=Frozen, **_FIELDS)
"""What a person says of a study: several values of an option are a grid."""


def planned(wish: Frozen, preset: Preset, exceptions: Sequence[Values] = ()) -> list[tuple[Values, Plan]]:
    """The plan of each cell, not yet settled, and the values of its factors; one without values is no grid.

    Every choice of one value of each factor is a cell. A cell has the preset of what it learns, below that what the
    person said, and below that the exceptions that name it.

    Args:
        wish: what the person said, and nothing else.
        preset: what is changed for a task and a kind of model.
        exceptions: for some cells, other fields. The factors that one names say for which; its other fields are what
            is different there.

    Raises:
        ValueError: a factor without effect in some cell, a value that is there twice, an exception for no cell.
    """
    given = {name: getattr(wish, name) for name in Options.model_fields if name in wish.model_fields_set}
    factors = {name: values for name, values in given.items() if varies(name) and len(values) > 1}
    fixed = {name: values[0] if varies(name) else values for name, values in given.items() if name not in factors}
    for name, values in factors.items():
        need(
            len(set(values)) == len(values),
            "each value of a factor is given once",
            f"got {flag(name)} {' '.join(map(str, values))}",
            "drop the one that is there twice",
        )
    chosen = [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]
    found = [_cell(values, fixed, preset, _own(values, factors, exceptions)) for values in chosen]
    _check(exceptions, factors, chosen)
    told = [set(idle(plan.task, fixed)) for _, plan in found]
    unheard = set.intersection(*told)
    return [(values, _without(plan, silent - unheard)) for (values, plan), silent in zip(found, told, strict=True)]


def grid(plans: Sequence[tuple[Values, Plan]]) -> Plan:
    """One plan of settled ones: that of the first cell, and of each cell what is different there."""
    first = plans[0][1]
    if not plans[0][0]:
        return first
    cells = [
        Cell(values=values, changes={name: value for name, value in plan if value != getattr(first, name)})
        for values, plan in plans
    ]
    return first.model_copy(update={"cells": tuple(cells)})


def read_exceptions(file: Path | None) -> list[Values]:
    """The tables [[cells]] of a file of options."""
    if file is None:
        return []
    found = tomllib.loads(file.read_text(encoding="utf-8")).get(EXCEPTIONS, [])
    need(
        isinstance(found, list) and all(isinstance(one, dict) for one in found),
        "cells of a grid are tables",
        f"got {EXCEPTIONS} = {found!r}",
        "write [[cells]] above each",
    )
    return found


def flag(name: str) -> str:
    """A field as an option of the command line."""
    return f"--{name.replace('_', '-')}"


def _cell(values: Values, fixed: Values, preset: Preset, own: Values) -> tuple[Values, Plan]:
    said = {**fixed, **values, **own}
    silent = idle(said.get("task") or Plan(model=said.get("model", "decoder")).task, values)
    need(
        not silent,
        "a factor has an effect in every cell",
        f"{', '.join(map(flag, silent))} says nothing of {said.get('task')}",
        "leave it out, or make two studies",
    )
    return values, Plan(**{**preset(said.get("task"), said.get("model")), **said})


def _own(values: Values, factors: Mapping[str, Any], exceptions: Sequence[Values]) -> Values:
    own: Values = {}
    for one in exceptions:
        if all(values[name] == value for name, value in one.items() if name in factors):
            own |= {name: value for name, value in one.items() if name not in factors}
    return own


def _check(exceptions: Sequence[Values], factors: Mapping[str, Any], chosen: Sequence[Values]) -> None:
    for one in exceptions:
        for name in one:
            need_known("field of a plan", name, Options.model_fields)
        where = {name: value for name, value in one.items() if name in factors}
        need(
            bool(where) and any(where.items() <= values.items() for values in chosen),
            "what is different in some cells names them by the values of their factors",
            f"got [[cells]] for {described(where) or 'no factor'}",
            f"name one of: {'; '.join(described(values) for values in chosen[:4])}",
        )


def _without(plan: Plan, names: set[str]) -> Plan:
    """The plan with these fields as they are where nothing is said."""
    return plan.model_copy(update={name: Plan.model_fields[name].default for name in names})
