"""What layers hold in training, remembered, checkpointed or undone, by depth."""

import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.attention.memory import highest, resident
from benchmarks.saving import save
from ordinate.geometry import Geometry
from ordinate.mixers.softmax import Softmax
from ordinate.models.block import Block, run
from ordinate.models.feedforward import FeedForward
from ordinate.models.reversible import run_reversible
from ordinate.schemes.rope import Rope

WIDTH, HEADS, TOKENS, BATCH, DEPTHS = 128, 4, 1024, 8, (2, 4, 8, 16)


def remembered(blocks: list[Block], x: Tensor) -> Tensor:
    """Plain layers, as autograd keeps them."""
    return run(blocks, x, places(blocks), None)[0]


def checkpointed(blocks: list[Block], x: Tensor) -> Tensor:
    """Plain layers, each made again on the way back from its input."""
    for block, at in zip(blocks, places(blocks), strict=True):
        x = checkpoint(lambda x, block=block, at=at: block(x, at)[0], x, use_reentrant=False)
    return x


def undone(blocks: list[Block], x: Tensor) -> Tensor:
    """Reversible layers."""
    return run_reversible(blocks, x, places(blocks), None)[0]


WAYS: dict[str, Callable[[list[Block], Tensor], Tensor]] = {
    way.__name__: way for way in (remembered, checkpointed, undone)
}


def places(blocks: list[Block]) -> list:
    """One text, seen by each layer."""
    return [Rope(head_width=WIDTH // HEADS).at(Geometry.causal(TOKENS))] * len(blocks)


def measure(way: str, depth: int) -> tuple[int, float]:
    """Bytes above weights and gradients, and CPU seconds of a step, in this process."""
    torch.set_num_threads(1)
    blocks = [
        Block(Softmax(width=WIDTH, heads=HEADS), FeedForward("gelu", WIDTH, 4 * WIDTH), nn.RMSNorm, WIDTH, 0.0)
        for _ in range(depth)
    ]
    x = torch.randn(BATCH, TOKENS, WIDTH)
    WAYS[way](blocks, x[:1, :TOKENS]).sum().backward()
    before, began = resident(), time.process_time()
    WAYS[way](blocks, x).square().sum().backward()
    return highest() - before, time.process_time() - began


def main(keep: bool) -> None:
    """Print what each way holds, by depth; each in a process of its own."""
    results = {}
    print(f"{'layers':>8}" + "".join(f"{way:>24}" for way in WAYS))
    for depth in DEPTHS:
        row = {}
        for way in WAYS:
            program = f"from benchmarks.reversible import measure; print(*measure({way!r}, {depth}))"
            done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
            held, seconds = done.stdout.split()
            row[way] = {"bytes": int(held), "seconds": float(seconds)}
        print(
            f"{depth:>8}" + "".join(f"{r['bytes'] / 2**20:>14.0f} MiB {r['seconds']:>4.1f} s" for r in row.values())
        )
        results[depth] = row
    if keep:
        print(f"saved: {save('reversible', results)}")
