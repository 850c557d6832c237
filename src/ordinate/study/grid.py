"""Hyperparameter grids: expand options with several values into the plans of a full factorial design."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_origin

from pydantic import Field, create_model

from ordinate.core.checks import need, need_known
from ordinate.study.options import Options, option_name, unused_fields
from ordinate.study.plan import Plan
from ordinate.study.run import Cell, FrozenModel, describe_cell

# options that cannot be factors: they apply to the whole study
STUDY_WIDE = frozenset(
    {
        "seeds",
        "leader_seeds",
        "tune_seeds",
        "tune_fraction",
        "threads",
        "checkpoint_every",
        "keep_checkpoints",
        "gradient_checkpointing",
    }
)
OVERRIDES_KEY = "cells"
Values = dict[str, Any]
Preset = Callable[[str | None, str | None], Mapping[str, Any]]


def _several(name: str) -> tuple[Any, Any]:
    """Type and default of an option that accepts several values."""
    field = Options.model_fields[name]
    kind: Any = field.annotation
    if field.metadata:
        kind = Annotated[kind, *field.metadata]  # pyrefly: ignore[not-a-type]
    words: Values = {"description": field.description, "alias": field.alias}
    if not can_vary(name):
        return kind, Field(field.default, **words)
    return tuple.__class_getitem__((kind, ...)), Field((field.default,), min_length=1, **words)


def can_vary(name: str) -> bool:
    """Whether an option can be a factor of a grid: it holds a single value, and is not in `STUDY_WIDE`."""
    listed = any(get_origin(kind) is tuple for kind in _kinds(Options.model_fields[name].annotation))
    return name not in STUDY_WIDE and not listed


def _kinds(annotation: Any) -> Sequence[Any]:
    return getattr(annotation, "__args__", ()) if get_origin(annotation) is not tuple else (annotation,)


_FIELDS: Any = {name: _several(name) for name in Options.model_fields}
PlanRequest: type[FrozenModel] = create_model("Plan", __base__=FrozenModel, **_FIELDS)
"""Options of a study as given by the user; an option with several values becomes a factor of a grid."""


def expand(request: FrozenModel, preset: Preset, overrides: Sequence[Values] = ()) -> list[tuple[Values, Plan]]:
    """Return the unresolved plan and the factor values of each cell; a single pair without values is no grid.

    The cells are the Cartesian product of all factors. Precedence, lowest first: the preset for the cell's task and
    kind of model, the user's options, the exceptions that match the cell.

    Args:
        request: the user's options, only those given.
        preset: returns the preset's options for a task and a kind of model.
        overrides: overrides for some cells. The factors among the fields select the cells; the other fields are
            the overrides.

    Raises:
        ValueError: a factor without effect in some cell, a repeated value, or an exception that matches no cell.
    """
    given = {name: getattr(request, name) for name in Options.model_fields if name in request.model_fields_set}
    factors = {name: values for name, values in given.items() if can_vary(name) and len(values) > 1}
    fixed = {name: values[0] if can_vary(name) else values for name, values in given.items() if name not in factors}
    for name, values in factors.items():
        need(
            len(set(values)) == len(values),
            "the values of a factor must differ",
            f"got {option_name(name)} {' '.join(map(str, values))}",
            "remove the repeated value",
        )
    need(
        not (factors and given.get("leader_seeds")),
        "--leader-seeds needs a study without a grid",
        f"got several values of {', '.join(map(option_name, factors))}",
        "give --seeds instead",
    )
    chosen = [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]
    found = [_cell(values, fixed, preset, _own(values, factors, overrides)) for values in chosen]
    _check(overrides, factors, chosen)
    idle_options = [set(unused_fields(plan.task, fixed)) for _, plan in found]
    # an option that no cell uses is kept, so that resolving the plan rejects it; one that only some cells use is
    # reset to its default in the others
    idle_everywhere = set.intersection(*idle_options)
    return [
        (values, _without(plan, silent - idle_everywhere))
        for (values, plan), silent in zip(found, idle_options, strict=True)
    ]


def join_cells(plans: Sequence[tuple[Values, Plan]]) -> Plan:
    """Combine resolved plans into one: the plan of the first cell, and for each cell the fields that differ."""
    first = plans[0][1]
    if not plans[0][0]:
        return first
    cells = [
        Cell(values=values, changes={name: value for name, value in plan if value != getattr(first, name)})
        for values, plan in plans
    ]
    return first.model_copy(update={"cells": tuple(cells)})


def read_overrides(file: Path | None) -> list[Values]:
    """Read the [[cells]] tables of a TOML file of options."""
    if file is None:
        return []
    found = tomllib.loads(file.read_text(encoding="utf-8")).get(OVERRIDES_KEY, [])
    need(
        isinstance(found, list) and all(isinstance(one, dict) for one in found),
        "exceptions for grid cells must be TOML tables",
        f"got {OVERRIDES_KEY} = {found!r}",
        "write [[cells]] above each table",
    )
    return found


def _cell(values: Values, fixed: Values, preset: Preset, own: Values) -> tuple[Values, Plan]:
    options = {**fixed, **values, **own}
    unused = unused_fields(options.get("task") or Plan(model=options.get("model", "decoder")).task, values)
    need(
        not unused,
        "a factor must have an effect in every cell",
        f"{', '.join(map(option_name, unused))} has none on task {options.get('task')}",
        "remove it, or run two studies",
    )
    if values:
        options["leader_seeds"] = 0
    return values, Plan(**{**preset(options.get("task"), options.get("model")), **options})


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
            "an exception must select cells by values of the factors",
            f"got [[cells]] for {describe_cell(where) or 'no factor'}",
            f"name one of: {'; '.join(describe_cell(values) for values in chosen[:4])}",
        )


def _without(plan: Plan, names: set[str]) -> Plan:
    """The plan with these fields reset to their defaults."""
    return plan.model_copy(update={name: Plan.model_fields[name].default for name in names})
