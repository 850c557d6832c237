"""Fully sharded data-parallel training (FSDP2)."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from ordinate.models.block import Block
from ordinate.models.shared_layers import SharedLayers


class ShardedStrategy(ModelParallelStrategy):
    """FSDP2 strategy: parameters, gradients and optimiser states are sharded over the devices.

    Checkpoints contain full tensors in the same order as on one device, so that any number of devices can resume from
    them. Rank 0 writes them.

    Args:
        world_size: devices of all machines.
        timeout: timeout of collective operations.
    Source: Zhao et al. 2023, PyTorch FSDP, https://arxiv.org/abs/2304.11277.
    """

    def __init__(self, world_size: int, timeout: timedelta) -> None:
        super().__init__(data_parallel_size=world_size, tensor_parallel_size=1, timeout=timeout)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """True: Lightning restores the optimiser by `load_optimizer_state_dict`."""
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return full parameters; a collective call, to be made by every rank."""
        return {name: full_tensor(value) for name, value in self._module.state_dict().items()}

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return full optimiser states, keyed by parameter index; a collective call, to be made by every rank."""
        kept = optimizer.state_dict()
        state = {
            number: {name: full_tensor(value) for name, value in own.items()} for number, own in kept["state"].items()
        }
        return {**kept, "state": state}

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        """Write the checkpoint on rank 0 only."""
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        return self.checkpoint_io.load_checkpoint(checkpoint_path)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load this rank's shard of the parameters."""
        own = self._module.state_dict()
        self._module.load_state_dict(
            {name: shard_like(value, own[name]) for name, value in checkpoint["state_dict"].items()}
        )

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load this rank's shard of the optimiser states."""
        for optimizer, kept in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            state = {
                number: {name: shard_like(value, parameters[number]) for name, value in own.items()}
                for number, own in kept["state"].items()
            }
            optimizer.load_state_dict({**kept, "state": state})

    @property
    def _module(self) -> nn.Module:
        module = self.lightning_module
        if module is None:
            raise RuntimeError("the strategy must be attached to a model; got none; call it during training")
        return module


def shard_model(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Return a copy of a model with its parameters sharded over a device mesh.

    Each block is its own FSDP unit, gathered when its forward runs; all other parameters form the root unit.
    """
    model = deepcopy(model)
    for module in list(model.modules()):
        if isinstance(module, Block) and _enters_by_forward(model, module):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if hasattr(model, "batch_logits"):
        register_fsdp_forward_method(model, "batch_logits")
    return model


def gather_into(model: nn.Module, shards: nn.Module) -> None:
    """Copy the gathered parameters of a sharded copy into a model; a collective call, to be made by every rank."""
    model.load_state_dict({name: full_tensor(value) for name, value in shards.state_dict().items()})


def full_tensor(value: Any) -> Any:
    """Gather a DTensor to a full tensor on the CPU; return anything else unchanged."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def shard_like(value: Any, like: Any) -> Any:
    """Shard a full tensor like the DTensor `like`; return anything else unchanged."""
    if not (isinstance(like, DTensor) and isinstance(value, Tensor) and value.shape == like.shape):
        return value
    # src_data_rank=None: every rank already has the full tensor, so nothing is broadcast
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def local_shard(parameter: Tensor) -> Tensor:
    """Return the local shard of a parameter."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _enters_by_forward(model: nn.Module, block: Block) -> bool:
    """Return whether a block is used through `forward` only, the call before which FSDP gathers its parameters."""
    plain = getattr(getattr(model, "shape", None), "blocks", "plain") == "plain"
    # parameters that layers share are in one unit, the root
    shared = any(isinstance(part, SharedLayers) for part in model.modules())
    return plain and not shared and not hasattr(block, "cross")


def global_norm(gradients: Tensor) -> Tensor:
    """Return a gradient norm as a plain tensor, equal on all ranks."""
    return torch.as_tensor(full_tensor(gradients))
