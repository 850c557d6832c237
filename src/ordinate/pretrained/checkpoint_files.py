"""Files of a published checkpoint: config.json and safetensors, read without executing code."""

import json
import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ordinate.core.checks import need, shown

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
GENERATION_CONFIG = "generation_config.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
WEIGHT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of the tensors that models compute with; others are quantised, or no weights."""
ADAPTER = "adapter_config.json"
"""With it, transformers loads another model, which the file names."""
EARLY_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


class CheckpointConfig(dict[str, Any]):
    """The contents of a config.json; a missing key raises an error that names it."""

    def __missing__(self, key: str) -> Any:
        raise ValueError(f"config.json must have {key!r}; got {', '.join(self)}; add the missing key")


def need_weight_dtype(name: str, tensor: Tensor) -> None:
    """Raise a ValueError unless a tensor has the type of a weight."""
    need(
        tensor.dtype in WEIGHT_DTYPES,
        "weights must be floating-point numbers of 16 bits or more",
        f"{name} has {str(tensor.dtype).removeprefix('torch.')}",
        "load the original checkpoint, or save it again after model.dequantize() in transformers",
    )


def resolve_checkpoint(source: str | Path) -> Path:
    """Return the local folder of a checkpoint, downloading it from the Hugging Face Hub if necessary.

    Args:
        source: a folder, or the name of a model on the hub; only its JSON and safetensors files are downloaded.

    Raises:
        ValueError: neither a folder nor a model name, or the download failed.
    """
    folder = Path(source)
    if folder.is_dir():
        return folder
    need(
        HUB_NAME.fullmatch(str(source)) is not None and not str(source).startswith("."),
        "a checkpoint must be a folder or the name of a model on the hub",
        f"got {str(source)!r}, which is neither",
        "check the path",
    )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(source), allow_patterns=["*.json", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"a checkpoint must be a folder or the name of a model on the hub; {str(source)!r} is not a local folder "
            f"and the hub answered: {error}; check the name, or download it first"
        ) from None


def read_config(folder: Path) -> CheckpointConfig:
    """Read config.json.

    Raises:
        ValueError: config.json is missing or not a JSON object.
    """
    path = folder / CONFIG
    need(path.is_file(), "a checkpoint needs a config.json", f"{folder} has none", "give the folder that contains it")
    config = _object(path)
    kind = config.get("model_type", "")
    came = f"got {shown(kind)}"
    need(isinstance(kind, str), "model_type in config.json must be the name of a family", came, "download it again")
    return config


def read_generation_config(folder: Path) -> CheckpointConfig:
    """Read generation_config.json; empty if there is none."""
    path = folder / GENERATION_CONFIG
    return _object(path) if path.is_file() else CheckpointConfig()


def _object(path: Path) -> CheckpointConfig:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    # a RecursionError: lists inside lists, a thousand deep
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path.name} must be a JSON object; {path} cannot be parsed: {error}; download it again"
        ) from None
    must = f"{path.name} must be a JSON object"
    need(isinstance(found, dict), must, f"{path} contains another value", "download it again")
    return CheckpointConfig(found)


class SizedTensors(Mapping[str, Tensor]):
    """Mapping from name to tensor that knows shapes without reading data."""

    default_dtype: torch.dtype | None = None
    """The dtype of a model of these tensors where none is asked for; None: theirs."""
    activations: str = ""
    """How activations are quantised where the checkpoint is meant to be run; "": not at all."""
    unread: str = ""
    """What a user must know of tensors of the files that are left out; "": nothing."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading its data."""

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of all tensors, without reading their data."""
        return [self.shape(name) for name in self]


class CheckpointTensors(SizedTensors):
    """Lazy mapping from name to tensor over the safetensors files of a checkpoint, with names as of today.

    Args:
        folder: the checkpoint.

    Raises:
        ValueError: no safetensors files, pickles only, an index that names missing files, or a tensor that is stored
            under an early and a current name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = self._files()
        # each is opened once: its header names all of its tensors, of which experts have thousands
        self._held = [_opened(file) for file in files]
        self._place: dict[str, Any] = {}
        self._stored: dict[str, str] = {}
        for file, held in zip(files, self._held, strict=True):
            names = list(held.keys())
            stored = {_current_name(name): name for name in names}
            both = [name for name in names if stored[_current_name(name)] != name]
            must, came = (
                "a tensor must be stored under one name",
                f"{file.name} has early and current ones of {both[:1]}",
            )
            need(not both, must, came, "remove those that are not used")
            self._stored |= stored
            self._place |= dict.fromkeys(stored, held)

    def __getitem__(self, name: str) -> Tensor:
        return self._place[name].get_tensor(self._stored[name])

    def __iter__(self):  # noqa: ANN204
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._place[name].get_slice(self._stored[name]).get_shape())

    def dtype(self, name: str) -> str:
        """Return a tensor's dtype, as named by safetensors: F32, BF16, F8_E4M3."""
        return self._place[name].get_slice(self._stored[name]).get_dtype()

    def dtypes(self) -> set[str]:
        """Return the dtypes of all tensors."""
        return {self.dtype(name) for name in self}

    def _files(self) -> list[Path]:
        index, whole = self.folder / INDEX, self.folder / WEIGHTS
        # it takes precedence, as in transformers: an index beside it may be of an earlier model
        if whole.is_file():
            return [whole]
        pickles = sorted(path.name for pattern in PICKLES for path in self.folder.glob(pattern))
        need(
            index.is_file(),
            f"weights are read from {WEIGHTS}",
            f"{self.folder} has {'only ' + ', '.join(pickles) if pickles else 'none'}",
            "pickles are not read because they can execute code: if you trust the file, convert it once with "
            "transformers (from_pretrained, then save_pretrained)"
            if pickles
            else "give the folder that contains it",
        )
        places: Any = _object(index).get("weight_map")
        came = f"got {type(places).__name__}"
        must = f"weight_map in {INDEX} must be an object with the file of each tensor"
        need(isinstance(places, dict), must, came, "download the checkpoint again")
        must, came = f"weight_map in {INDEX} must name the tensors of the model", "it names none"
        need(bool(places), must, came, "download the checkpoint again")
        # values of any kind, a list for example, which is not hashable
        names = sorted({name if isinstance(name, str) else repr(name) for name in places.values()})
        for name in names:
            # isfile, because is_file() raises where a name is too long
            inside = Path(name).name == name and os.path.isfile(self.folder / name)
            need(
                inside,
                f"{INDEX} must name files in its folder",
                f"got {shown(name)}",
                "download the checkpoint again",
            )
        return [self.folder / name for name in names]


def remove_shards(folder: Path) -> None:
    """Remove the index of a sharded checkpoint, and the files in its folder that it names."""
    index = folder / INDEX
    try:
        places = _object(index).get("weight_map") if index.is_file() else None
    except ValueError:
        places = None
    index.unlink(missing_ok=True)
    for name in {name for name in (places.values() if isinstance(places, dict) else ()) if isinstance(name, str)}:
        inside = Path(name).name == name and name.endswith(".safetensors") and name != WEIGHTS
        # isfile, because unlink() raises where a name is too long
        if inside and os.path.isfile(folder / name):
            (folder / name).unlink()


def _current_name(name: str) -> str:
    """Return a tensor's name; checkpoints converted from TensorFlow have other names for the parameters of norms."""
    for early, current in EARLY_NAMES.items():
        if name.endswith(early):
            return name.removesuffix(early) + current
    return name


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path.name} must be a safetensors file; {path} cannot be read: {error}; download it again"
        ) from None
