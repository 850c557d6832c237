"""Load a model from a folder: an Ordinate model of any kind, or a published checkpoint."""

from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ordinate.core.checks import need, need_known, reading, shown
from ordinate.models.registry import MODEL_KINDS, Model, ModelKind
from ordinate.models.stored_shape import read_shape
from ordinate.pretrained.checkpoint_files import CONFIG, WEIGHTS, CheckpointTensors, read_config
from ordinate.pretrained.checkpoint_sizes import check_finite, check_sizes
from ordinate.pretrained.weights import load

REMEDY = "check that both files belong to one model, or copy them again"


def read_model(folder: str | Path, kind: str | None = None) -> Model:
    """Load the model of a folder, as the class that its config.json names.

    Args:
        folder: written by `save_pretrained`, or a published checkpoint of a supported family.
        kind: required kind: decoder, encoder, encoder-decoder or vision; None: any.

    Raises:
        ValueError: no model, or one of another kind; the message names the command for it.
    """
    folder = Path(folder)
    config = read_config(folder)
    # without either it is a published checkpoint that does not name its family
    if "model_type" in config or "shape" not in config:
        model = cast(Model, load(folder))
        check_kind(folder, type(model), kind)
        return model
    named = config.get("architectures", [MODEL_KINDS["decoder"].model.__name__])
    must, remedy = f"architectures in {folder / CONFIG} must be a list of names", "write the model again"
    need(isinstance(named, list) and bool(named) and isinstance(named[0], str), must, f"got {shown(named)}", remedy)
    known = {one.model.__name__: one.model for one in MODEL_KINDS.values()}
    need_known(f"kind of model (in {folder / CONFIG})", named[0], known)
    check_kind(folder, known[named[0]], kind)
    check_own(folder, config, known[named[0]])
    # huggingface_hub prints to stdout while loading
    with redirect_stdout(StringIO()):
        return cast(Any, known[named[0]]).from_pretrained(str(folder), local_files_only=True)


def check_own(folder: Path, config: Mapping[str, Any], model: type) -> None:
    """Check the files of a model in Ordinate's own format before anything is made of them.

    Args:
        folder: the files.
        config: the contents of config.json.
        model: class of the model.

    Raises:
        ValueError: no shape, sizes that do not fit the weights, or weights that are not finite.
    """
    shape = config.get("shape")
    must = f"shape in {folder / CONFIG} must be an object with the sizes of the model"
    need(isinstance(shape, dict), must, f"got {shown(shape)}", "write the model again")
    tensors, experts = CheckpointTensors(folder), cast(dict[str, Any], shape).get("experts")
    check_sizes(cast(dict[str, Any], shape) | (experts if isinstance(experts, dict) else {}), tensors)
    with reading(folder / CONFIG), torch.device("meta"):
        made = model(read_shape(kind_of(model)[1].shape, cast(dict[str, Any], shape)))
    wanted = {name: tuple(tensor.shape) for name, tensor in made.state_dict().items()}
    _check_tensors(wanted, tensors, made)
    check_finite(tensors)


def _check_tensors(wanted: Mapping[str, tuple[int, ...]], tensors: CheckpointTensors, model: nn.Module) -> None:
    """Check names and shapes of the tensors; of tied weights one is stored."""
    # a tied head is the token table
    tied = {name for name in wanted if name not in dict(model.named_parameters())} - {
        name for name, _ in model.named_buffers()
    }
    missing = sorted(wanted.keys() - tensors.keys() - tied)
    extra = sorted(tensors.keys() - wanted.keys())
    listed = ", ".join([*(f"no {name}" for name in missing[:3]), *(f"an unexpected {name}" for name in extra[:3])])
    must = f"{WEIGHTS} must have the tensors of the model that {CONFIG} describes"
    need(not missing and not extra, must, f"it has {listed}", REMEDY)
    for name in tensors:
        came = tensors.shape(name)
        must = f"{name} in {WEIGHTS} must have shape {wanted[name]} according to {CONFIG}"
        need(came == wanted[name], must, f"got {came}", REMEDY)


def check_kind(folder: Path, model: type, kind: str | None) -> None:
    """Raise a ValueError unless the model of a folder is of this kind."""
    name, found = kind_of(model)
    need(
        kind in (None, name),
        f"a model of kind {kind} is needed",
        f"{folder} contains one of kind {name}",
        f"use it with `ordinate {found.command}`",
    )


def kind_of(model: type) -> tuple[str, ModelKind]:
    """Return the name of a model's kind, and the kind."""
    return next((name, kind) for name, kind in MODEL_KINDS.items() if issubclass(model, kind.model))
