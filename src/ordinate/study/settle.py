"""A plan with everything decided: for this machine, this task, and the mixers that there are."""

from collections.abc import Callable

import torch

from ordinate import catalog
from ordinate.checks import need
from ordinate.mixer import Mixer
from ordinate.models.kinds import KINDS
from ordinate.study.beginning import with_base
from ordinate.study.budget import budgets
from ordinate.study.fields import idle
from ordinate.study.model import shape_of
from ordinate.study.plan import Plan, usual_scheme
from ordinate.study.run import Run
from ordinate.study.source import kind_of, source_of
from ordinate.study.tuning import rates
from ordinate.tokenizer import make_tokenizer
from ordinate.training.precision import fast_precision

ALL = "all"


def settle(plan: Plan, tell: Callable[[str], None] = lambda line: None) -> Plan:
    """The plan with everything decided for this machine, and every run's model checked.

    Args:
        plan: as it was asked for.
        tell: is told, in a line each, which mixers `all` leaves out and why.

    Raises:
        ValueError: an unknown task, scheme, mixer or option, sizes that do not fit, a mixer that does not honour the
            scheme beside it, two models written the same way, an option that has no effect on this task, a task that
            another kind of model learns.
    """
    make_tokenizer(*catalog.parse(plan.tokenizer))
    plan = with_base(plan)
    plan, vocabulary = _task(plan)
    plan = _mixers(plan, vocabulary, tell)
    if plan.schemes is None and plan.mixers is None:
        plan = plan.model_copy(update={"schemes": plan.usual_schemes})
    names = [run.name for run in plan.own_runs({}, 0)]
    need(
        len(set(names)) == len(names),
        "each scheme and mixer is compared once",
        f"got {', '.join([*(plan.mixers or ()), *(plan.schemes or ())])}",
        "drop the one that is there twice; for more runs of it use --seeds",
    )
    if plan.precision == "auto":
        plan = plan.model_copy(update={"precision": fast_precision()})
    plan = plan.model_copy(update={"tune": rates(plan)})
    for run in plan.own_runs({}, 0):
        shape_of(plan, run, vocabulary)
    return plan.model_copy(update={"budgets": budgets(plan, vocabulary)})


def _task(plan: Plan) -> tuple[Plan, int]:
    """The plan with the task's own length, and how many different tokens there are."""
    task, _ = kind_of(plan.task)
    need(
        task.reader == plan.model,
        f"{plan.task} is learned by a model of the kind {task.reader}",
        f"got --model {plan.model}",
        f"give --model {task.reader}, or leave out --task for what {plan.model} models learn",
    )
    source = source_of(plan)
    length, vocabulary = source.check(plan)
    given = [name for name in idle(plan.task, Plan.model_fields) if _given(plan, name, length)]
    listed = ", ".join(f"--{name.replace('_', '-')}" for name in given)
    need(
        not given,
        f"options of a study have an effect; {plan.task} {source.nature}",
        f"got {listed}",
        "leave them out; the sizes of a task are options of its own (see `ordinate list tasks`): recall:pairs=8",
    )
    return plan.model_copy(update={"length": length}), vocabulary


def _given(plan: Plan, name: str, length: int) -> bool:
    """Whether a field was given a value of its own; a settled plan has the length of its task."""
    usual = (Plan.model_fields[name].default, length) if name == "length" else (Plan.model_fields[name].default,)
    return getattr(plan, name) not in usual


def _mixers(plan: Plan, vocabulary: int, tell: Callable[[str], None]) -> Plan:
    """The plan with `all` replaced by the names of those that can be trained."""
    if plan.mixers is None or ALL not in plan.mixers:
        return plan
    found = []
    for name in catalog.names("ordinate.mixers"):
        if name in plan.mixers:
            continue
        reason = _unfit(name, plan, vocabulary)
        if reason:
            tell(f"left out: {name}: {reason}")
        else:
            found.append(name)
    others = [mixer for mixer in plan.mixers if mixer != ALL]
    return plan.model_copy(update={"mixers": (*found, *others)})


def _unfit(name: str, plan: Plan, vocabulary: int) -> str | None:
    """Why this mixer cannot be trained to read as this kind of model does; None if it can."""
    mixer, kind = catalog.load("ordinate.mixers", Mixer, name), KINDS[plan.model]
    if kind.causal and not mixer.causal:
        return "it has no form that reads from left to right"
    if kind.bidirectional and not mixer.bidirectional:
        return "it has no form that reads from both sides"
    runs = [
        Run(label=name, scheme=one, mixer=name, seed=0) for one in plan.schemes or (usual_scheme(name, plan.model),)
    ]
    try:
        shapes = [shape_of(plan, run, vocabulary) for run in runs]
    except ValueError as error:
        return str(error)
    with torch.device("meta"):
        exact = shapes[0].make_mixer(0).exact_causal
    return None if exact or not kind.causal else "as it is by default, it lets later tokens through"
