"""The files of a published checkpoint: what it says of itself, and its tensors, read without running anything."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ordinate.checks import need

CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
WRITING = "generation_config.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


class Config(dict[str, Any]):
    """A config.json: what is asked for and missing is named."""

    def __missing__(self, key: str) -> Any:
        """Say what is missing."""
        raise ValueError(f"a config.json of this family has {key!r}; it has {', '.join(self)}; complete it")


def find_folder(source: str | Path) -> Path:
    """The folder of a checkpoint: itself, or where the hub keeps its copy.

    Args:
        source: a folder, or the name of a model on the hub, of which only JSON and safetensors files are fetched.

    Raises:
        ValueError: neither a folder nor a name, or a name that cannot be fetched.
    """
    folder = Path(source)
    if folder.is_dir():
        return folder
    need(
        NAME.fullmatch(str(source)) is not None and not str(source).startswith("."),
        "a checkpoint is a folder, or the name of a model on the hub",
        f"got {str(source)!r}, which is neither",
        "check the path",
    )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(source), allow_patterns=["*.json", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"a checkpoint is a folder, or the name of a model on the hub; {str(source)!r} is no folder here, "
            f"and the hub says: {error}; check the name, or fetch it first"
        ) from None


def read_config(folder: Path) -> Config:
    """What the checkpoint says of itself.

    Raises:
        ValueError: no config.json, or one that holds no JSON object.
    """
    path = folder / CONFIG
    need(path.is_file(), "a checkpoint has a config.json", f"{folder} has none", "give the folder that holds it")
    return _object(path)


def read_writing(folder: Path) -> Config:
    """What the checkpoint says of how it writes, beside its config.json; nothing where it says nothing."""
    path = folder / WRITING
    return _object(path) if path.is_file() else Config()


def read_ends(folder: Path) -> list[int]:
    """The tokens that end a text, as the checkpoint says; none where it says nothing."""
    said = {**read_config(folder), **read_writing(folder)}.get("eos_token_id")
    return said if isinstance(said, list) else [] if said is None else [int(said)]


def _object(path: Path) -> Config:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} holds a JSON object; {path} does not: {error}; fetch it again") from None
    holds = f"{path.name} holds a JSON object"
    need(isinstance(found, dict), holds, f"{path} holds another value", "fetch it again")
    return Config(found)


class Tensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name, each read when it is asked for.

    Args:
        folder: the checkpoint's.

    Raises:
        ValueError: no safetensors files, pickles instead of them, or an index that names other files than there are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = self._files()
        self._place: dict[str, Path] = {}
        for file in files:
            with _opened(file) as tensors:
                self._place |= dict.fromkeys(tensors.keys(), file)

    def __getitem__(self, name: str) -> Tensor:
        """Read one."""
        with _opened(self._place[name]) as tensors:
            return tensors.get_tensor(name)

    def __iter__(self):  # noqa: ANN204
        """The names."""
        return iter(self._place)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._place)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one, without reading it."""
        with _opened(self._place[name]) as tensors:
            return tuple(tensors.get_slice(name).get_shape())

    def types(self) -> set[str]:
        """What their numbers are, in the words of safetensors: F32, BF16, F8_E4M3."""
        found = set[str]()
        for file in set(self._place.values()):
            with _opened(file) as tensors:
                found |= {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118 - no dict
        return found

    def _files(self) -> list[Path]:
        index = self.folder / INDEX
        if not index.is_file():
            whole = self.folder / WHOLE
            pickles = sorted(path.name for pattern in PICKLES for path in self.folder.glob(pattern))
            need(
                whole.is_file(),
                f"weights are read from {WHOLE}",
                f"{self.folder} has {'only ' + ', '.join(pickles) if pickles else 'none'}",
                "a pickle may run any code when it is read, so it is not: where you trust it, convert it once by "
                "transformers (from_pretrained, then save_pretrained)"
                if pickles
                else "give the folder that holds it",
            )
            return [whole]
        names = sorted(set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values()))
        for name in names:
            inside = isinstance(name, str) and Path(name).name == name and (self.folder / name).is_file()
            need(inside, f"{INDEX} names files of its folder", f"got {name!r}", "fetch the checkpoint again")
        return [self.folder / name for name in names]


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path.name} must be a safetensors file; it is not: {error}; fetch it again") from None
