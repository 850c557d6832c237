"""Initial models of a study: newly initialised, or a trained model whose position scheme is replaced."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from ordinate.core import catalog
from ordinate.core.checks import need, need_known
from ordinate.data.tokenizer import FILE, Tokenizer, load_tokenizer
from ordinate.models._transplant import transplant_to
from ordinate.models.registry import MODEL_KINDS, Model
from ordinate.models.scheme_defaults import replace_schemes
from ordinate.models.shape import Shape
from ordinate.models.stored_shape import read_shape
from ordinate.pretrained.checkpoint_files import read_config, resolve_checkpoint
from ordinate.pretrained.read_model import read_model
from ordinate.pretrained.weights import published_shape
from ordinate.study.data_source import source_of
from ordinate.study.options import DEFAULT_TASKS, option_name
from ordinate.study.plan import Plan
from ordinate.study.run import Run

# options that a trained model determines
BASE_FIELDS = (
    "tokenizer", "mixers", "width", "layers", "heads", "kv_heads", "norm", "feedforward", "dropout", "match",
    "embedding_scale", "embedding_std",
)  # fmt: skip
# peak learning rate for continued training; the default for new models would destroy trained weights
BASE_LEARNING_RATE = 1e-4


def resolve_base(plan: Plan) -> Plan:
    """Fill in what the plan's trained model determines; a plan for new models is returned as it is.

    Raises:
        ValueError: options that the model determines, no such model, one of another kind, or a tokenizer that does
            not belong to it.
    """
    defaults = {name: field.default for name, field in Plan.model_fields.items()}
    if plan.base is None:
        need(
            plan.steps > 0,
            "new models need training",
            "got --steps 0",
            "give some, or a trained model: --from FOLDER",
        )
        need(plan.scheme_location is None, "--scheme-location needs a trained model", "got none", "give one: --from")
        return plan
    learned = DEFAULT_TASKS[plan.model]
    need(
        catalog.parse(plan.task)[0] == learned,
        f"a trained {plan.model} must continue on task {learned}",
        f"got --from with --task {plan.task}",
        "leave --task out",
    )
    plan = plan.model_copy(update={"base": str(resolve_checkpoint(plan.base).resolve())})
    shape = base_shape(plan)
    from_model = source_of(plan).fields_of_base(plan, shape)
    decided = {name: defaults[name] for name in BASE_FIELDS} | from_model
    conflicting = [name for name, value in decided.items() if getattr(plan, name) not in (defaults[name], value)]
    need(
        not conflicting,
        "sizes and tokenizer are those of the trained model",
        f"got --from with {', '.join(map(option_name, conflicting))}",
        "leave them out",
    )
    derived = {"length": shape.max_length, "learning_rate": BASE_LEARNING_RATE}
    unset = {name: value for name, value in derived.items() if getattr(plan, name) == defaults[name]}
    return plan.model_copy(update=unset | from_model | {"schemes": plan.schemes or (_schemes(plan, shape),)})


def base_shape(plan: Plan) -> Shape:
    """Return the shape of the trained model that a plan starts from, without reading its weights."""
    folder = Path(cast(str, plan.base))
    config = read_config(folder)
    if "model_type" in config:
        shape = published_shape(folder)
        found = next(name for name, kind in MODEL_KINDS.items() if kind.shape is type(shape))
    else:
        kinds = {kind.model.__name__: name for name, kind in MODEL_KINDS.items()}
        (named,) = config.get("architectures", [MODEL_KINDS["decoder"].model.__name__])
        need_known("kind of model, as its config.json says,", named, kinds)
        found = kinds[named]
        shape = read_shape(MODEL_KINDS[found].shape, config["shape"])
    came = f"{folder} holds a model of kind {found}"
    need(found == plan.model, f"a study of {plan.model} models needs one", came, f"give --model {found}")
    trained = type(shape).__dataclass_fields__["head"].default
    must, came = f"training of a {found} continues with head={trained!r}", f"{folder} has head={shape.head!r}"
    need(shape.head == trained, must, came, "give the model that it was made from")
    return shape


def base_tokenizer(plan: Plan) -> Tokenizer:
    """Return the tokenizer of the trained model that a plan starts from."""
    return load_tokenizer(Path(cast(str, plan.base)))


def fitting_base_tokenizer(plan: Plan, shape: Shape) -> Tokenizer:
    """Return the tokenizer of the trained model that a plan starts from, after checking that it fits the model."""
    folder = Path(cast(str, plan.base))
    need(
        (folder / FILE).is_file(),
        "a trained model's tokenizer must be in its folder",
        f"{folder} has no {FILE}",
        f"add the model's {FILE}",
    )
    tokenizer = load_tokenizer(folder)
    need(
        tokenizer.size <= shape.vocabulary,
        "every token of the tokenizer must be in the model's vocabulary",
        f"got {tokenizer.size} tokens for a model of {shape.vocabulary}",
        f"use the {FILE} that the model was trained with",
    )
    return tokenizer


def adapted_shape(plan: Plan, run: Run) -> Shape:
    """Return the shape of a run's model in a study that starts from a trained one."""
    shape = base_shape(plan)
    # schemes without explicit numbers are scaled (context extension) from the trained length to the longest one
    trained = replace(shape, max_length=plan.length)
    stretched = replace_schemes(trained, run.scheme, locations=plan.scheme_location, max_length=plan.longest_length)
    return replace(stretched, max_length=max(shape.max_length, plan.longest_length))


def initial_model(plan: Plan, run: Run, shape: Shape) -> Model:
    """Return the initial model of a run: newly initialised, or transplanted weights with the run's scheme."""
    if plan.base is None:
        model = MODEL_KINDS[plan.model].build(shape)
    else:
        model = transplant_to(read_model(plan.base, plan.model).float(), shape, seed=run.seed).model
    if plan.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return model


def _schemes(plan: Plan, shape: Shape) -> str:
    """Return the scheme of those parts of the trained model whose scheme would be replaced."""
    # with its own schemes this changes nothing, but raises for a part that the model lacks
    replace_schemes(shape, shape.scheme_spec, locations=plan.scheme_location)
    lines = {
        side.shape.scheme_spec
        for name, side in shape.scheme_locations.items()
        if (not side.is_cross_attention if plan.scheme_location is None else name in plan.scheme_location)
    }
    need(
        len(lines) == 1,
        "without a given scheme, the parts to change must have the same one",
        f"got {', '.join(sorted(lines))}",
        "give --schemes, or one part only: --scheme-location",
    )
    return lines.pop()
