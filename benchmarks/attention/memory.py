"""Memory of a forward and a backward pass of attention above its inputs."""

import argparse

import torch

from benchmarks.attention.contenders import BASE, PEERS, Prepare, Size, ours, plain
from benchmarks.harness.memory import highest, in_own_process, resident
from benchmarks.harness.timing import stepped
from benchmarks.harness.workload import TYPES


def contender(name: str) -> Prepare:
    """Look up a contender by name: the baseline, a peer, or one of ours."""
    if name == BASE:
        return plain
    if name in PEERS:
        return PEERS[name]
    return ours(name)


def peak(name: str, tokens: int, type: str) -> int:
    """Return the peak memory above the inputs [bytes], measured in a process of its own."""
    return in_own_process("benchmarks.attention.memory", name, str(tokens), type)[0]


def held(name: str, tokens: int, type: torch.dtype) -> int:
    """Return the peak memory above the inputs of a pass in this process [bytes]."""
    torch.set_num_threads(1)
    prepare = contender(name)
    # warm-up: what is loaded or compiled on first use is not memory of the pass
    stepped(prepare(Size(512), type, True))()
    forward, leaves = prepare(Size(tokens), type, True)
    upstream = torch.randn(leaves[0].shape).to(type)
    before = resident()
    out = forward()
    torch.autograd.grad(out, leaves, upstream.view_as(out))
    return highest() - before


def main() -> None:
    """Print the bytes of a contender at a number of tokens in a type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("tokens", type=int)
    parser.add_argument("type", choices=TYPES)
    chosen = parser.parse_args()
    print(held(chosen.name, chosen.tokens, TYPES[chosen.type]))
