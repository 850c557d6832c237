"""What the models of a study begin as: drawn anew, or a trained model whose scheme is exchanged."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from ordinate.checkpoints.files import find_folder, read_config
from ordinate.checkpoints.read import read_model
from ordinate.checkpoints.weights import published_shape
from ordinate.checks import need
from ordinate.models.decoder import Decoder
from ordinate.models.kinds import KINDS, Model
from ordinate.models.shape import Shape
from ordinate.models.line import completed
from ordinate.models.transplant import transplant
from ordinate.study.plan import Plan, Run
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
        ValueError: options that the model has decided already, no such model, one that does not write, or a tokenizer
            that does not belong to it.
    """
    usual = Plan.model_fields
    if plan.base is None:
        need(
            plan.steps > 0, "new models are trained", "got --steps 0", "give some, or a trained model: --from FOLDER"
        )
        return plan
    given = [f"--{name.replace('_', '-')}" for name in DECIDED if getattr(plan, name) != usual[name].default]
    need(
        not given,
        "a trained model has its sizes and its tokenizer already",
        f"got --from with {', '.join(given)}",
        "leave them out",
    )
    came = f"got --from with {'--model ' + plan.model if plan.model != 'decoder' else '--task ' + plan.task}"
    reads = plan.model == "decoder" and plan.task == "text"
    need(reads, "a study goes on with a decoder that reads text", came, "leave it out")
    folder = find_folder(plan.base)
    need(
        (folder / FILE).is_file(),
        "a text is cut as the model is used to",
        f"{folder} has no {FILE}",
        "put that of the model beside it",
    )
    plan = plan.model_copy(update={"base": str(folder.resolve())})
    shape, tokenizer = base_shape(plan), base_tokenizer(plan)
    need(
        tokenizer.size <= shape.vocabulary,
        "the model knows every token of its tokenizer",
        f"got {tokenizer.size} tokens for a model of {shape.vocabulary}",
        f"put the {FILE} beside it that it was trained with",
    )
    changes = {"schemes": plan.schemes or (shape.scheme,)}
    own = {"length": shape.max_length, "learning_rate": LEARNING_RATE}
    changes |= {name: value for name, value in own.items() if getattr(plan, name) == usual[name].default}
    return plan.model_copy(update=changes)


def base_shape(plan: Plan) -> Shape:
    """The sizes of the model that a plan begins with; its weights are not read."""
    folder = Path(cast(str, plan.base))
    config = read_config(folder)
    published = "model_type" in config
    shape = published_shape(folder) if published else None
    # the shapes of other models are kinds of their own
    reads = (
        type(shape) is Shape if published else config.get("architectures", [Decoder.__name__]) == [Decoder.__name__]
    )
    need(reads, "a model that goes on with a text is a decoder", f"{folder} holds another", "give one")
    return shape or cast(Shape, Decoder._decode_arg(Shape, config["shape"]))


def base_tokenizer(plan: Plan) -> Tokenizer:
    """The tokenizer of the model that a plan begins with."""
    return load_tokenizer(Path(cast(str, plan.base)))


def new_shape(plan: Plan, run: Run) -> Shape:
    """The sizes of a run's model, where the plan begins with a trained one."""
    shape = base_shape(plan)
    longest = max(shape.max_length, plan.longest)
    return replace(shape, scheme=_line(plan, run, shape), max_length=longest)


def begin(plan: Plan, run: Run, shape: Shape) -> Model:
    """The model of a run before its first step."""
    if plan.base is None:
        return KINDS[plan.model].build(shape)
    model = cast(Decoder, read_model(plan.base, "decoder"))
    return transplant(model.float(), shape.scheme, max_length=shape.max_length, seed=run.seed).model


def _line(plan: Plan, run: Run, shape: Shape) -> str:
    """The scheme of a run, stretched from the trained length to the longest that is read where it says no numbers."""
    return completed(run.scheme, replace(shape, max_length=plan.length), plan.longest)
