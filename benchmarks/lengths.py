"""Attention at lengths from 16 to 2048 tokens: the backend that `attend` chooses, against PyTorch's own ways.

Each figure is the CPU time of one thread in float32 or bfloat16, as a ratio to the faster of two ways to the same
result: PyTorch's attention with the bias as a tensor, and the plain formula. The ways run in turns. A batch has 2048
tokens in short sequences. Where `attend` chooses one of the two itself, there is nothing to compare.
"""

import itertools
import time
from typing import Any

import torch

from benchmarks.attention import suffix
from benchmarks.attention.contenders import SCHEMES, make
from benchmarks.harness.memory import keep_freed
from benchmarks.harness.saving import save
from benchmarks.harness.timing import in_turns, stepped
from benchmarks.harness.workload import HEAD_WIDTH, HEADS, TYPES, Row
from ordinate import Geometry, attend, explain
from ordinate.ops.native import build

# one of those that are computed alike
LEFT_OUT = ("rope, interleaved", "toeplitz")
TOKENS = (16, 64, 128, 256, 512, 1024, 2048)
BATCH_TOKENS = 2048
MASKS = {"causal": Geometry.causal, "full": Geometry.full}
PLAIN = ("sdpa", "reference")
ROUNDS = 3
# measured differences below this are variation between runs
TOLERANCE = 1.05


def measured(scheme: str, mask: str, tokens: int, learn: bool, dtype: torch.dtype) -> dict[str, Any] | None:
    """Name the chosen backend, and its time to the faster of PyTorch's ways; None: it is one of these."""
    marks, where = make(scheme, HEADS).requires_grad_(learn), MASKS[mask](tokens)
    torch.manual_seed(0)
    shape = max(1, BATCH_TOKENS // tokens), HEADS, tokens, HEAD_WIDTH
    q, k, v = (torch.randn(shape).to(dtype).requires_grad_(learn) for _ in range(3))
    with torch.set_grad_enabled(learn):
        told = explain(q, k, v, marks.at(where))
    if told.backend in PLAIN:
        return None
    plain = [way for way in PLAIN if _supports(way, q, k, v, marks.at(where))]
    leaves = [q, k, v, *marks.parameters()] if learn else []
    steps = {
        way: stepped((lambda way=way: attend(q, k, v, marks.at(where), backend=way), leaves))
        for way in (None, *plain)
    }
    rows: dict[str | None, Row] = in_turns(steps, rounds=ROUNDS, base=None)
    fastest = min(rows[way]["ratio"] for way in plain)
    return {"backend": told.backend, "seconds": rows[None]["seconds"], "ratio": 1 / fastest}


def _supports(way: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: Any) -> bool:
    try:
        explain(q, k, v, at, backend=way)
    except ValueError:
        return False
    return True


def main(keep: bool, quick: bool = False) -> None:
    """Measure every scheme, mask, length and pass; print the ratios, with a star where PyTorch is faster."""
    torch.set_num_threads(1)
    keep_freed()
    began = time.perf_counter()
    results: dict[str, Any] = {type: {} for type in TYPES}
    schemes = sorted(set(SCHEMES) - set(LEFT_OUT))
    lengths = (32, 256) if quick else TOKENS
    for scheme, mask, (type, dtype) in itertools.product(schemes, MASKS, TYPES.items()):
        for learn in (False, True):
            title = f"{scheme}, {mask}, {'training' if learn else 'forward'}"
            found = {str(tokens): measured(scheme, mask, tokens, learn, dtype) for tokens in lengths}
            results[type][title] = found
            print(f"{title + ', ' + type:40s}", " ".join(map(_cell, found.values())), flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s; -: PyTorch's own way is chosen; *: it would be faster")
    if keep:
        native = build.unavailable_reason("attention") is None
        print(save(f"lengths{'' if native else '-uncompiled'}{suffix()}", results))


def _cell(found: dict[str, Any] | None) -> str:
    return "-    " if found is None else f"{found['ratio']:.2f}{'*' if found['ratio'] > TOLERANCE else ' '}"
