"""What the models of a study begin as: drawn anew, or a trained model whose scheme is exchanged."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ordinate import catalog
from ordinate.checkpoints.files import find_folder, read_config
from ordinate.checkpoints.read import read_model
from ordinate.checkpoints.weights import published_shape
from ordinate.checks import need, need_known
from ordinate.models.kinds import KINDS, Model
from ordinate.models.line import with_schemes
from ordinate.models.shape import Shape
from ordinate.models.transplant import transplant_to
from ordinate.study.options import TASKS
from ordinate.study.plan import Plan
from ordinate.study.run import Run
from ordinate.study.source import source_of
from ordinate.tokenizer import FILE, Tokenizer, load_tokenizer

# what a trained model has decided already
DECIDED = (
    "tokenizer", "mixers", "width", "layers", "heads", "kv_heads", "norm", "feedforward", "dropout", "equal",
)  # fmt: skip
# one that suits new weights would undo what old ones have learned
LEARNING_RATE = 1e-4


def with_base(plan: Plan) -> Plan:
    """The plan with what its trained model decides; the plan itself where it begins with none.

    Raises:
        ValueError: options that the model has decided already, no such model, one of another kind, or a tokenizer
            that does not belong to it.
    """
    usual = {name: field.default for name, field in Plan.model_fields.items()}
    if plan.base is None:
        need(
            plan.steps > 0, "new models are trained", "got --steps 0", "give some, or a trained model: --from FOLDER"
        )
        need(plan.sides is None, "--sides says where a trained model is changed", "got no model", "give one: --from")
        return plan
    learned = TASKS[plan.model]
    need(
        catalog.parse(plan.task)[0] == learned,
        f"a trained {plan.model} goes on with {learned}",
        f"got --from with --task {plan.task}",
        "leave it out",
    )
    plan = plan.model_copy(update={"base": str(find_folder(plan.base).resolve())})
    shape = base_shape(plan)
    own = source_of(plan).taken_from(plan, shape)
    decided = {name: usual[name] for name in DECIDED} | own
    given = [name for name, value in decided.items() if getattr(plan, name) not in (usual[name], value)]
    need(
        not given,
        "a trained model has its sizes and its tokenizer already",
        f"got --from with {', '.join('--' + name.replace('_', '-') for name in given)}",
        "leave them out",
    )
    open_ = {"length": shape.max_length, "learning_rate": LEARNING_RATE}
    free = {name: value for name, value in open_.items() if getattr(plan, name) == usual[name]}
    return plan.model_copy(update=free | own | {"schemes": plan.schemes or (_schemes(plan, shape),)})


def base_shape(plan: Plan) -> Shape:
    """The sizes of the model that a plan begins with; its weights are not read."""
    folder = Path(cast(str, plan.base))
    config = read_config(folder)
    if "model_type" in config:
        shape = published_shape(folder)
        found = next(name for name, kind in KINDS.items() if kind.shape is type(shape))
    else:
        kinds = {kind.model.__name__: name for name, kind in KINDS.items()}
        (named,) = config.get("architectures", [KINDS["decoder"].model.__name__])
        need_known("kind of model, as its config.json says,", named, kinds)
        found = kinds[named]
        shape = cast(Shape, cast(Any, KINDS[found].model)._decode_arg(KINDS[found].shape, config["shape"]))
    came = f"{folder} holds one of the kind {found}"
    need(found == plan.model, f"a study of the kind {plan.model} goes on with one", came, f"give --model {found}")
    return shape


def base_tokenizer(plan: Plan) -> Tokenizer:
    """The tokenizer of the model that a plan begins with."""
    return load_tokenizer(Path(cast(str, plan.base)))


def need_tokenizer(plan: Plan, shape: Shape) -> Tokenizer:
    """The tokenizer beside the model that a plan begins with, which must be the model's."""
    folder = Path(cast(str, plan.base))
    need(
        (folder / FILE).is_file(),
        "a text is cut as the model is used to",
        f"{folder} has no {FILE}",
        "put that of the model beside it",
    )
    tokenizer = load_tokenizer(folder)
    need(
        tokenizer.size <= shape.vocabulary,
        "the model knows every token of its tokenizer",
        f"got {tokenizer.size} tokens for a model of {shape.vocabulary}",
        f"put the {FILE} beside it that it was trained with",
    )
    return tokenizer


def new_shape(plan: Plan, run: Run) -> Shape:
    """The sizes of a run's model, where the plan begins with a trained one."""
    shape = base_shape(plan)
    # stretched from the trained length to the longest that is read, where the line says no numbers
    trained = replace(shape, max_length=plan.length)
    stretched = with_schemes(trained, run.scheme, sides=plan.sides, max_length=plan.longest)
    return replace(stretched, max_length=max(shape.max_length, plan.longest))


def begin(plan: Plan, run: Run, shape: Shape) -> Model:
    """The model of a run before its first step."""
    if plan.base is None:
        return KINDS[plan.model].build(shape)
    return transplant_to(read_model(plan.base, plan.model).float(), shape, seed=run.seed).model


def _schemes(plan: Plan, shape: Shape) -> str:
    """The line of schemes that the model has where a plan would exchange it."""
    # asked for by the lines that are there already, an unknown side is named
    with_schemes(shape, shape.scheme, sides=plan.sides)
    lines = {
        side.shape.scheme
        for name, side in shape.sides.items()
        if (not side.across if plan.sides is None else name in plan.sides)
    }
    need(
        len(lines) == 1,
        "sides with schemes of their own are told apart",
        f"got none of {', '.join(sorted(lines))}",
        "name a scheme, or one side: --sides",
    )
    return lines.pop()
