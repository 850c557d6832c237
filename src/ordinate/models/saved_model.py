"""Models in files: model.safetensors and config.json in a folder, or on the Hugging Face Hub."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import torch
from safetensors.torch import load_model, save_model
from torch import nn

from ordinate.core.atomic_files import write_json
from ordinate.core.checks import need, reading
from ordinate.core.initial_values import copy_initial_values
from ordinate.models.shape import Shape
from ordinate.models.stored_shape import read_shape

Model = TypeVar("Model", bound="SavedModel")
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
HUB_EXTRA = 'pip install "ordinate[hf]"'
CARD_TEXT = """---
library_name: ordinate
---

    from ordinate import {name}

    model = {name}.from_pretrained("{source}")
"""


class SavedModel:
    """Base class of models that are written to a folder and read again.

    Weights are read from safetensors only, never from a pickle. All of them must be there, and no others; fields of
    config.json must be known.
    """

    shape_class: ClassVar[type[Shape]] = Shape
    """Class of the model's hyperparameters."""

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model.safetensors and config.json, with the name of the class, to a folder; it is made if necessary.

        Raises:
            ValueError: a scheme or mixer that cannot be written as text, such as a class defined inside a function;
                weights that a model of this shape does not have, as parametrisations and pruning make them, or
                without values.
        """
        folder, model = Path(folder), cast(Any, self)
        for name in model.shape.SPECS:
            spec = getattr(model.shape, name)
            if spec is not None:
                spec.check_writable()
        _need_own_weights(model)
        folder.mkdir(parents=True, exist_ok=True)
        save_model(model, str(folder / WEIGHTS))
        write_json(folder / CONFIG, {"architectures": [type(self).__name__], "shape": asdict(model.shape)})
        if not (folder / CARD).exists():
            text = CARD_TEXT.format(name=type(self).__name__, source=folder.name)
            (folder / CARD).write_text(text, encoding="utf-8")

    def reset_parameters(self) -> None:
        """Initialise all weights anew, as those of a new model of this shape: after `to_empty`, for example.

        Called on the whole model: linear layers alone have another `reset_parameters`, of PyTorch.
        """
        model = cast(Any, self)
        copy_initial_values(model, lambda: type(model)(model.shape))

    @classmethod
    def from_pretrained(
        cls: type[Model],
        source: str | Path,
        *,
        local_files_only: bool = False,
        revision: str | None = None,
        map_location: str = "cpu",
        allow: Sequence[str] = (),
    ) -> Model:
        """Read a model that `save_pretrained` has written, in evaluation mode.

        Args:
            source: its folder, or the name of a repository on the Hugging Face Hub.
            local_files_only: download nothing.
            revision: branch, tag or commit of the repository.
            map_location: device of the weights.
            allow: classes outside of Ordinate that config.json may name, as `module:Class`. They are imported, which
                runs their code; classes of modules that are imported already need not be listed.

        Raises:
            FileNotFoundError: no such folder.
            ValueError: files that are missing or do not fit each other, or a class that is not allowed.
        """
        folder = _local_folder(source, local_files_only, revision)
        for name in (CONFIG, WEIGHTS):
            there = (folder / name).is_file()
            must = f"a model's folder must contain {CONFIG} and {WEIGHTS}; weights of other formats are not read"
            need(there, must, f"{folder} has no {name}", "write the model by save_pretrained")
        with reading(folder / CONFIG):
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            is_shape = isinstance(config, dict) and isinstance(config.get("shape"), dict)
            need(is_shape, f"{CONFIG} must have a shape", "it has none", "write the model again")
            made: Any = cast(Any, cls)(read_shape(cls.shape_class, config["shape"], allow=allow))
        load_model(made, str(folder / WEIGHTS), device=map_location)
        return made.to(map_location).eval()

    def push_to_hub(self, repository: str, *, private: bool | None = None, **upload: Any) -> str:
        """Upload the model to the Hugging Face Hub; returns the address of the commit.

        Args:
            repository: its name there: "user/name".
            private: whether a repository that is made by this is private; None: the user's default.
            upload: further arguments of `huggingface_hub.upload_folder`, such as `token` or `commit_message`.
        """
        from tempfile import TemporaryDirectory

        hub = _hub()
        with TemporaryDirectory() as folder:
            hub.create_repo(repository, private=private, exist_ok=True, token=upload.get("token"))
            self.save_pretrained(folder)
            text = CARD_TEXT.format(name=type(self).__name__, source=repository)
            (Path(folder) / CARD).write_text(text, encoding="utf-8")
            return str(hub.upload_folder(repo_id=repository, folder_path=folder, **upload))


def _need_own_weights(model: Any) -> None:
    """Raise a ValueError unless a new model of the same shape can read the weights of this one."""
    # the constructor draws a seed
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        wanted = _named_weights(type(model)(model.shape))
    found = _named_weights(model)
    unlike = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    must, remedy = (
        "a saved model has the weights of its shape",
        "remove what has changed them, such as a parametrisation",
    )
    need(not unlike, must, f"got others: {', '.join(unlike[:3])}", f"{remedy}, pruning or sharing, first")
    empty = any(x.is_meta for x in model.state_dict().values())
    need(not empty, "weights must have values to be saved", "got some on the meta device", "load a state dict first")


def _named_weights(model: nn.Module) -> dict[str, tuple[str, torch.Size]]:
    """By the name of each weight: the first name of the same tensor, and its shape."""
    first: dict[int, str] = {}
    weights = model.state_dict(keep_vars=True)
    return {name: (first.setdefault(id(x), name), x.shape) for name, x in weights.items()}


def _local_folder(source: str | Path, local_files_only: bool, revision: str | None) -> Path:
    if Path(source).is_dir():
        return Path(source)
    if local_files_only or not isinstance(source, str):
        raise FileNotFoundError(f"a model must be a folder; {source} is none; check the path")
    hub = _hub()
    return Path(hub.snapshot_download(source, revision=revision, allow_patterns=[CONFIG, WEIGHTS]))


def _hub() -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"the Hugging Face Hub needs the package huggingface_hub; it is not installed; {HUB_EXTRA}"
        ) from None
    return huggingface_hub
