"""Memory of a forward and a backward pass of a mixer above its inputs, over the number of tokens."""

import argparse

import torch

from benchmarks.harness.memory import highest, in_own_process, resident
from benchmarks.harness.timing import stepped
from benchmarks.mixers.members import SOFTMAX, Size, softmax, whole


def peaks(name: str, lengths: list[int]) -> list[int]:
    """Return the peak memory above the inputs at each length, ascending [bytes], measured in a process of its own."""
    return in_own_process("benchmarks.mixers.memory", name, *map(str, lengths), count=len(lengths))


def main() -> None:
    """Print the bytes of a mixer at some lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("tokens", type=int, nargs="+")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    prepare = softmax if chosen.name == SOFTMAX else whole(chosen.name)
    # warm-up: what is loaded or compiled on first use is not memory of the pass
    stepped(prepare(Size(128), True))()
    for tokens in chosen.tokens:
        step = stepped(prepare(Size(tokens), True))
        before = resident()
        step()
        # the high-water mark of the process is the longer text's, since lengths ascend
        print(highest() - before)
