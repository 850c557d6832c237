"""Activation memory of training by depth: plain, with activation checkpointing, and with reversible layers."""

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from benchmarks.harness.saving import save
from ordinate.core.geometry import Geometry
from ordinate.mixers.softmax import Softmax
from ordinate.models.block import Block, run_blocks
from ordinate.models.feedforward import FeedForward
from ordinate.models.reversible import run_reversible
from ordinate.schemes.rope import Rope

WIDTH, HEADS, TOKENS, BATCH, DEPTHS = 128, 4, 1024, 2, (2, 8, 32)


def remembered(blocks: list[Block], x: Tensor) -> Tensor:
    """Plain layers: autograd stores all activations."""
    return run_blocks(blocks, x, places(blocks), None)[0]


def checkpointed(blocks: list[Block], x: Tensor) -> Tensor:
    """Activation checkpointing: each layer is recomputed from its input in the backward pass."""
    for block, at in zip(blocks, places(blocks), strict=True):
        x = checkpoint(lambda x, block=block, at=at: block(x, at)[0], x, use_reentrant=False)
    return x


def undone(blocks: list[Block], x: Tensor) -> Tensor:
    """Reversible layers: inputs are recomputed from outputs in the backward pass."""
    return run_reversible(blocks, x, places(blocks), None)[0]


WAYS: dict[str, Callable[[list[Block], Tensor], Tensor]] = {
    way.__name__: way for way in (remembered, checkpointed, undone)
}


def places(blocks: list[Block]) -> list:
    """Causal geometry with RoPE for each layer."""
    return [Rope(head_width=WIDTH // HEADS).at(Geometry.causal(TOKENS))] * len(blocks)


class Held(TorchDispatchMode):
    """Counts the bytes of all storages created while it is active, as long as they are alive."""

    def __init__(self, there: list[Tensor]) -> None:
        super().__init__()
        self.alive = {x.untyped_storage().data_ptr() for x in there}
        self.now = self.highest = 0

    def __torch_dispatch__(self, function: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        """Run an operation, and count the storages of its outputs."""
        out = function(*inputs, **(options or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in self.alive:
                storage = x.untyped_storage()
                self.alive.add(storage.data_ptr())
                self.now += storage.nbytes()
                self.highest = max(self.highest, self.now)
                weakref.finalize(storage, self._gone, storage.data_ptr(), storage.nbytes())
        return out

    def _gone(self, address: int, size: int) -> None:
        self.alive.remove(address)
        self.now -= size


def measure(way: str, depth: int) -> dict[str, float]:
    """Bytes between forward and backward pass, peak bytes, and CPU seconds of a step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = ((Softmax(width=WIDTH, heads=HEADS), FeedForward("gelu", WIDTH, 4 * WIDTH)) for _ in range(depth))
    blocks = [Block(mixer, feedforward, nn.RMSNorm, WIDTH, 0.0) for mixer, feedforward in made]
    parameters = [parameter for block in blocks for parameter in block.parameters()]
    x = torch.randn(BATCH, TOKENS, WIDTH)
    WAYS[way](blocks, x).sum().backward()
    began = time.process_time()
    WAYS[way](blocks, x).sum().backward()
    seconds = time.process_time() - began
    with Held([x, *parameters, *(parameter.grad for parameter in parameters)]) as held:
        loss = WAYS[way](blocks, x).sum()
        between = held.now
        loss.backward()
    return {"between": between, "highest": held.highest, "seconds": seconds}


def main(keep: bool) -> None:
    """Print the memory of each form, by depth."""
    print("MiB between forward and backward pass, peak MiB, and CPU seconds")
    print(f"{'layers':>8}" + "".join(f"{way:>26}" for way in WAYS))
    results = {}
    for depth in DEPTHS:
        results[depth] = row = {way: measure(way, depth) for way in WAYS}
        cells = (
            f"{r['between'] / 2**20:>10.1f} {r['highest'] / 2**20:>8.1f} {r['seconds']:>6.2f}" for r in row.values()
        )
        print(f"{depth:>8}" + "".join(cells))
    if keep:
        print(f"saved: {save('reversible', results)}")
