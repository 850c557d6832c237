"""Resolve a plan: fill in machine-dependent defaults, expand `all`, match sizes, and validate every run."""

import torch

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.core.memory import need_memory
from ordinate.core.progress import OnProgress, Progress, ignore
from ordinate.data.tokenizer import make_tokenizer
from ordinate.mixers._mixer import Mixer
from ordinate.models.registry import MODEL_KINDS
from ordinate.study.data_source import source_of, task_class
from ordinate.study.flops import matched_steps
from ordinate.study.initial_model import resolve_base
from ordinate.study.leaders import FEWEST_RANKED
from ordinate.study.model_sizing import ModelSizing
from ordinate.study.options import option_name, unused_fields
from ordinate.study.plan import Plan, default_scheme
from ordinate.study.run import Run
from ordinate.study.tuning import learning_rates
from ordinate.training.checkpoint import checkpoint_bytes
from ordinate.training.settings import fast_precision

ALL_MIXERS = "all"
# multiple of this machine's memory that no model can have: a cluster's machines may have more
MEMORY_FACTOR = 16


def resolve(plan: Plan, on_progress: OnProgress = ignore) -> Plan:
    """Return the plan with every default filled in for this machine, after building the shape of every run's model.

    Args:
        plan: the plan as given by the user.
        on_progress: receives one message for each mixer that `all` leaves out, with the reason.

    Raises:
        ValueError: an unknown task, scheme, mixer or option; sizes that do not fit; a mixer that does not support the
            scheme it is paired with; two equal arms; an option without effect on this task; a task for another kind
            of model.
    """
    make_tokenizer(*catalog.parse(plan.tokenizer))
    _need_memory(plan)
    plan = resolve_base(plan)
    need(
        plan.steps > 0 or not plan.gradient_checkpointing,
        "--gradient-checkpointing needs training steps",
        "got --steps 0, which evaluates only",
        "leave it out",
    )
    plan, vocabulary = _task(plan)
    _need_memory_of_batches(plan, vocabulary)
    sizing = ModelSizing(plan, vocabulary)
    plan = _leader_seeds(_mixers(plan, sizing, on_progress))
    if plan.schemes is None and plan.mixers is None:
        plan = plan.model_copy(update={"schemes": plan.default_schemes})
    runs = plan.runs_for_seed({}, 0)
    names = [run.name for run in runs]
    need(
        len(set(names)) == len(names),
        "schemes and mixers must differ from each other",
        f"got {', '.join([*(plan.mixers or ()), *(plan.schemes or ())])}",
        "remove the repeated one; for several runs of it use --seeds",
    )
    if plan.precision == "auto":
        plan = plan.model_copy(update={"precision": fast_precision()})
    plan = plan.model_copy(update={"tune_lr": learning_rates(plan)})
    shapes = [sizing.shape_of(run) for run in runs]
    need(
        plan.kv_heads in (None, plan.heads) or any(shape.kv_heads == plan.kv_heads for shape in shapes),
        "--kv-heads needs a mixer with key and value heads, and without a number of its own",
        f"got {plan.kv_heads} for {', '.join(plan.mixers or ('softmax',))}",
        "leave it out, or compare such a mixer too",
    )
    need_memory("the largest model", 4 * sizing.largest, times=MEMORY_FACTOR)
    plan = plan.model_copy(update={"budgets": matched_steps(plan, sizing)})
    _kept_checkpoints(plan, sizing, on_progress)
    return plan


def _kept_checkpoints(plan: Plan, sizing: ModelSizing, on_progress: OnProgress) -> None:
    """Say how many checkpoints are kept and how large they are; raise a ValueError for steps that no run takes."""
    kept = sorted(set(plan.keep_checkpoints))
    if not kept:
        return
    longest = max((plan.budgets or {}).values(), default=plan.steps)
    must = f"--keep-checkpoints takes steps of the training, 0 to {longest}"
    need(kept[-1] <= longest, must, f"got {kept[-1]}", "leave it out, or give more --steps")
    count = len(kept) * plan.seeds * len(plan.arms())
    size = count * checkpoint_bytes(sizing.largest) / 1e6
    about = f", at most {size:,.0f} MB" if size else ""
    on_progress(Progress(message=f"{len(kept)} checkpoints of each run are kept, {count} in all{about}"))


def _leader_seeds(plan: Plan) -> Plan:
    """Return the plan with the number of further seeds of the leading arms."""
    count = len(plan.arms())
    if plan.leader_seeds is None:
        # a model that is evaluated as it is has the same values with every seed
        further = plan.seeds == 1 and count >= FEWEST_RANKED and plan.steps > 0
        return plan.model_copy(update={"leader_seeds": int(further)})
    need(
        plan.leader_seeds == 0 or count >= FEWEST_RANKED,
        f"--leader-seeds needs at least {FEWEST_RANKED} schemes or mixers to choose the leading ones from",
        f"got {count}",
        "give --seeds instead, which is the number of runs of each",
    )
    return plan


def _need_memory(plan: Plan) -> None:
    """Check that a model of this size is possible, before any is made.

    The machine that gives the command may be smaller than those that train, so it refuses only what none could hold.
    """
    # of each layer: four matrices of attention, and at least two of the feed-forward network, four times as wide
    weights = 4 * plan.layers * 12 * plan.width**2
    need_memory(f"a model of --layers {plan.layers} --width {plan.width}", weights, times=MEMORY_FACTOR)


def _need_memory_of_batches(plan: Plan, vocabulary: int) -> None:
    """Check that the embeddings of a batch, of the longest evaluated sequence and of the vocabulary are possible."""
    tokens = {
        f"a batch of --batch {plan.batch} and length {plan.length}": plan.batch * plan.length,
        f"a sequence of {plan.longest_length} tokens (--eval-length-multiples)": plan.longest_length,
        f"a vocabulary of {vocabulary}": vocabulary,
    }
    for what, count in tokens.items():
        need_memory(what, 4 * plan.width * count, times=MEMORY_FACTOR)


def _task(plan: Plan) -> tuple[Plan, int]:
    """Return the plan with the task's length, and the vocabulary size."""
    task, _ = task_class(plan.task)
    need(
        task.model_kind == plan.model,
        f"task {plan.task} needs a model of kind {task.model_kind}",
        f"got --model {plan.model}",
        f"give --model {task.model_kind}, or leave out --task for the default task of {plan.model} models",
    )
    source = source_of(plan)
    length, vocabulary = source.check(plan)
    without_effect = [name for name in unused_fields(plan.task, Plan.model_fields) if _given(plan, name, length)]
    listed = ", ".join(map(option_name, without_effect))
    need(
        not without_effect,
        f"every option must have an effect; task {plan.task} {source.summary}",
        f"got {listed}",
        "leave them out; a task's sizes are options of its own (see `ordinate list tasks`): recall:pairs=8",
    )
    return plan.model_copy(update={"length": length}), vocabulary


def _given(plan: Plan, name: str, length: int) -> bool:
    """Whether a field differs from its default; a resolved plan has the task's length, which counts as default."""
    usual = (Plan.model_fields[name].default, length) if name == "length" else (Plan.model_fields[name].default,)
    return getattr(plan, name) not in usual


def _mixers(plan: Plan, sizing: ModelSizing, on_progress: OnProgress) -> Plan:
    """Replace `all` by the names of the mixers that can be trained."""
    if plan.mixers is None or ALL_MIXERS not in plan.mixers:
        return plan
    found = []
    for name in catalog.names("ordinate.mixers"):
        if name in plan.mixers:
            continue
        reason = _unfit(name, plan, sizing)
        if reason:
            on_progress(Progress(message=f"left out: {name}: {reason}"))
        else:
            found.append(name)
    others = [mixer for mixer in plan.mixers if mixer != ALL_MIXERS]
    return plan.model_copy(update={"mixers": (*found, *others)})


def _unfit(name: str, plan: Plan, sizing: ModelSizing) -> str | None:
    """Return why a mixer cannot be trained in this kind of model; None if it can."""
    mixer, kind = catalog.load("ordinate.mixers", Mixer, name), MODEL_KINDS[plan.model]
    if kind.causal and not mixer.causal:
        return "it has no causal form"
    if kind.bidirectional and not mixer.bidirectional:
        return "it has no bidirectional form"
    runs = [
        Run(label=name, scheme=one, mixer=name, seed=0) for one in plan.schemes or (default_scheme(name, plan.model),)
    ]
    try:
        shapes = [sizing.shape_of(run) for run in runs]
    except ValueError as error:
        return str(error)
    with torch.device("meta"):
        exact = shapes[0].make_mixer(0).strictly_causal
    return None if exact or not kind.causal else "with default options it leaks information from later tokens"
