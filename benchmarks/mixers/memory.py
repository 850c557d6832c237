"""How much memory a forward and a backward pass of a mixer hold above their inputs, over the length of the text."""

import argparse
import subprocess
import sys

import torch

from benchmarks.attention.measuring import stepped
from benchmarks.attention.memory import highest, resident
from benchmarks.mixers.members import SOFTMAX, Size, softmax, whole


def peaks(name: str, lengths: list[int]) -> list[int]:
    """Bytes above the inputs at each length, ascending, measured in a process of its own."""
    command = [sys.executable, "-c", "from benchmarks.mixers.memory import main; main()", name, *map(str, lengths)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [int(number) for number in done.stdout.split()[-len(lengths) :]]


def main() -> None:
    """Print it for a mixer and some lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("tokens", type=int, nargs="+")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    prepare = softmax if chosen.name == SOFTMAX else whole(chosen.name)
    # what is loaded or built at first use is not what a pass holds
    stepped(prepare(Size(128), True))()
    for tokens in chosen.tokens:
        step = stepped(prepare(Size(tokens), True))
        before = resident()
        step()
        # a longer text goes beyond the mark that a shorter one has left
        print(highest() - before)
