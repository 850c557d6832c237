"""A model in a folder: our own of any kind, or a published one."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, cast

from ordinate.checkpoints.files import CONFIG, read_config
from ordinate.checkpoints.weights import load
from ordinate.checks import need, need_known
from ordinate.models.kinds import KINDS, Kind, Model


def read_model(folder: str | Path, kind: str | None = None) -> Model:
    """The model of a folder, of the class that its config.json names.

    Args:
        folder: what `save_pretrained` wrote, or a published checkpoint whose family is known.
        kind: which kind it must be: decoder, encoder, encoder-decoder or vision; None: any.

    Raises:
        ValueError: no model there, or one of another kind; the message names the command that uses it.
    """
    folder = Path(folder)
    config = read_config(folder)
    if "model_type" in config:
        model = cast(Model, load(folder))
        check_kind(folder, type(model), kind)
        return model
    named = config.get("architectures", [KINDS["decoder"].model.__name__])
    known = {one.model.__name__: one.model for one in KINDS.values()}
    need_known(f"kind of model, as {folder / CONFIG} says,", named[0], known)
    check_kind(folder, known[named[0]], kind)
    # the hub's loader prints
    with redirect_stdout(StringIO()):
        return cast(Any, known[named[0]]).from_pretrained(str(folder), local_files_only=True)


def check_kind(folder: Path, model: type, kind: str | None) -> None:
    """Raise unless the model of a folder is of this kind."""
    name, found = kind_of(model)
    need(
        kind in (None, name),
        f"a model of the kind {kind} is needed",
        f"{folder} holds one of the kind {name}",
        f"use it by `ordinate {found.command}`",
    )


def kind_of(model: type) -> tuple[str, Kind]:
    """The name of a model's kind, and the kind."""
    return next((name, kind) for name, kind in KINDS.items() if issubclass(model, kind.model))
