"""A model whose numbers are shared out over devices, and put together where they are needed (FSDP2)."""

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


class Sharded(ModelParallelStrategy):
    """Each device keeps a share of every parameter, of its gradient and of what the optimiser remembers of it.

    Checkpoints are those of one device: they hold whole tensors, in the same order, so that any number of devices
    goes on from them. One process writes them.

    Args:
        world: devices of all machines.
        timeout: how long a process waits for the others.
    Source: Zhao et al. 2023, PyTorch FSDP, https://arxiv.org/abs/2304.11277.
    """

    def __init__(self, world: int, timeout: timedelta) -> None:
        super().__init__(data_parallel_size=world, tensor_parallel_size=1, timeout=timeout)

    @property
    def lightning_restore_optimizer(self) -> bool:
        """Whether `load_optimizer_state_dict` is asked to."""
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The parameters, whole; every process has to ask."""
        return {name: whole(value) for name, value in self._module.state_dict().items()}

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """What the optimiser remembers, whole, parameters by their number; every process has to ask."""
        kept = optimizer.state_dict()
        state = {number: {name: whole(value) for name, value in own.items()} for number, own in kept["state"].items()}
        return {**kept, "state": state}

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        """Let one process write."""
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Read the whole tensors."""
        return self.checkpoint_io.load_checkpoint(checkpoint_path)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Keep this device's share of the parameters."""
        own = self._module.state_dict()
        self._module.load_state_dict(
            {name: share(value, own[name]) for name, value in checkpoint["state_dict"].items()}
        )

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Keep this device's share of what the optimiser remembered."""
        for optimizer, kept in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            state = {
                number: {name: share(value, parameters[number]) for name, value in own.items()}
                for number, own in kept["state"].items()
            }
            optimizer.load_state_dict({**kept, "state": state})

    @property
    def _module(self) -> nn.Module:
        module = self.lightning_module
        if module is None:
            raise RuntimeError("the strategy has a model while it trains one; got none; ask it then")
        return module


def shard(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """A copy of a model whose parameters are shared out over the devices of a mesh.

    Blocks are put together one after another, everything else with the model itself.
    """
    model = deepcopy(model)
    for module in list(model.modules()):
        if isinstance(module, Block) and _enters_by_forward(model, module):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if hasattr(model, "answer"):
        register_fsdp_forward_method(model, "answer")
    return model


def assemble(model: nn.Module, shards: nn.Module) -> None:
    """Give a model the whole numbers of its copy that was shared out; every process has to ask."""
    model.load_state_dict({name: whole(value) for name, value in shards.state_dict().items()})


def whole(value: Any) -> Any:
    """A tensor whose shares are on several devices, put together on the processor; anything else as it is."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def share(value: Any, like: Any) -> Any:
    """This device's share of a tensor of the size of `like`, if that is shared out; anything else as it is."""
    if not (isinstance(like, DTensor) and isinstance(value, Tensor) and value.shape == like.shape):
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def local(parameter: Tensor) -> Tensor:
    """What this device has of a parameter."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _enters_by_forward(model: nn.Module, block: Block) -> bool:
    """Whether nothing of a block is used but by its `forward`, before which its numbers are put together."""
    plain = getattr(getattr(model, "shape", None), "blocks", "plain") == "plain"
    return plain and not hasattr(block, "cross")


def norm_of(gradients: Tensor) -> Tensor:
    """A norm that is the same for all devices."""
    return torch.as_tensor(whole(gradients))
