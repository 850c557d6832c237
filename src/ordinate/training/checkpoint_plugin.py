"""Checkpoints of safetensors and JSON as a plugin of PyTorch Lightning."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.plugins.io import CheckpointIO

from ordinate.training.checkpoint import read_checkpoint, write_checkpoint


class SafetensorsCheckpointIO(CheckpointIO):
    """Lightning checkpoint IO in the format of `ordinate.training.checkpoint`."""

    def save_checkpoint(self, checkpoint: Mapping[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint atomically; raises as `write_checkpoint` of that module."""
        write_checkpoint(checkpoint, Path(path))

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = None) -> Any:
        """Read a checkpoint; raises as `read_checkpoint` of that module."""
        return read_checkpoint(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint."""
        shutil.rmtree(path, ignore_errors=True)
