"""Mixers that compare fewer pairs by blocks or buckets, against softmax attention over all pairs, by sequence length.

Whole mixers with their projections, causal, batch 1, float32, in CPU time of one thread, in turns. Softmax attention
is measured twice: computed by PyTorch's SDPA, and by the backend that `attend` selects.

A processor with AVX2 only is simulated by ATEN_CPU_CAPABILITY=avx2, MKL_ENABLE_INSTRUCTIONS=AVX2,
ONEDNN_MAX_CPU_ISA=AVX2 and, since C++ is compiled for the real processor, ORDINATE_NATIVE=off.
"""

import math
from itertools import pairwise

import torch

from benchmarks.harness.memory import keep_freed
from benchmarks.harness.saving import save
from benchmarks.harness.timing import in_turns, stepped
from benchmarks.harness.workload import Row
from benchmarks.mixers.members import SOFTMAX, Prepare, Size, softmax, whole

LENGTHS, SHORT = (1024, 2048, 4096, 8192, 16384), (1024, 2048)
SELECTED, ROUNDS = "softmax", 5
MIXERS: dict[str, Prepare] = {SOFTMAX: softmax} | {n: whole(n) for n in (SELECTED, "block_linformer", "reformer")}


def main(keep: bool, quick: bool = False) -> None:
    """Measure, and print milliseconds, the ratio to softmax by SDPA, and the growth from length to length."""
    torch.set_num_threads(1)
    keep_freed()
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for learn in (False, True):
        title = "forward and backward" if learn else "forward"
        found[title] = {}
        for tokens in SHORT if quick else LENGTHS:
            steps = {name: stepped(prepare(Size(tokens), learn)) for name, prepare in MIXERS.items()}
            found[title][str(tokens)] = in_turns(steps, rounds=ROUNDS, base=SOFTMAX)
        show(title, found[title])
    if keep and not quick:
        only_avx2 = torch.backends.cpu.get_cpu_capability() == "AVX2"
        print(save("fewer_pairs-avx2" if only_avx2 else "fewer_pairs", found))


def show(title: str, rows: dict[str, dict[str, Row]]) -> None:
    """Print a line for each mixer."""
    print(f"\n{title}: ms (ratio to {SOFTMAX}); exponent of the growth over the last doubling")
    print(" " * 18 + "".join(f"{tokens:>18}" for tokens in rows))
    for name in MIXERS:
        each = [row[name] for row in rows.values()]
        cells = "".join(f"{1e3 * row['seconds']:10.0f} ({row['ratio']:5.2f})" for row in each)
        *_, (before, last) = pairwise(row["seconds"] for row in each)
        print(f"{name:<18}{cells}   {math.log2(last / before):.2f}")
