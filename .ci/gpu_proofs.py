"""Prints which backends of attention, and which kernels of mixers, agree with the plain formulas on a device.

In small cases of many forms, which many processes compile: on a GPU that takes nearly all of the time.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.attention._backend import AttentionCall, ScoreOptions, backends
from ordinate.attention._proof_case import disagreement
from ordinate.ops.triton.proofs import found as proved
from ordinate.schemes import T5, Alibi, Fire, NoPosition, Rope, Shaw, Toeplitz

Rows = list[dict[str, str | None]]
TYPES = ("bfloat16", "float16", "float32")
# with kernels of their own
MIXERS = ["deltanet", "gated_deltanet", "rwkv7", "gla", "linear", "mamba2", "performer", "retnet", "rwkv4", "rwkv6"]
GEOMETRIES = {
    # as long as the backends of long texts ask for
    "causal": lambda: Geometry.causal(8192),
    "full": lambda: Geometry.full(2048),
    # tiles and loops differ by window: `ordinate.attention._proof_structure`
    "window": lambda: Geometry.causal(2048, window=256),
    "narrow window": lambda: Geometry.causal(2048, window=64),
    "wide window": lambda: Geometry.causal(2048, window=1000),
    "packed": lambda: Geometry.packed([1000, 1048]),
    # texts of which no tile divides the length
    "cross": lambda: Geometry.cross(300, 1001),
    "decoding": lambda: Geometry.causal(1, cached=2047),
    "decoding, few keys": lambda: Geometry.causal(1, cached=500),
}


def main() -> None:
    """Test each backend in each form that it supports; print the reasons where it is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--job", nargs="+", help="a type, a width and a geometry, or mixers and a width: these alone")
    chosen = parser.parse_args()
    if chosen.job:
        with torch.device(chosen.device):
            print(json.dumps(computed(chosen.job, quick=chosen.quick)))
        return
    types, widths = (TYPES[-1:], (16,)) if chosen.quick else (TYPES, (64, 128, 40))
    shapes = ["causal", "packed"] if chosen.quick else list(GEOMETRIES)
    # at one width: each form of each kernel is compiled first
    jobs = [["mixers", str(widths[0])]]
    jobs += [[type, str(width), shape] for type, width, shape in itertools.product(types, widths, shapes)]
    found = run(jobs, ["--device", chosen.device, *(["--quick"] if chosen.quick else [])])
    wrong = [row for row in found if row["reason"] is not None]
    for row in wrong:
        print(json.dumps(row))
    print(f"{len(found)} forms, {len(wrong)} wrong")


def computed(job: Sequence[str], *, quick: bool) -> Rows:
    """Compute a job, given in words."""
    if job[0] == "mixers":
        return tested_mixers(int(job[1]))
    type, width, shape = job
    return tested(getattr(torch, type), int(width), shape, quick=quick)


def run(jobs: Sequence[Sequence[str]], options: Sequence[str]) -> Rows:
    """Compute each job in a process of its own, with which an error of the device ends; many at a time."""
    # processes enough: each would start a team of compilers of its own for FlexAttention
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    pool, found = ThreadPoolExecutor(os.cpu_count() or 1), []
    try:
        for done in as_completed([pool.submit(in_process, job, options) for job in jobs]):
            found += done.result()
            save(found)
    finally:
        # at the limit of time jobs that have not begun are left out
        pool.shutdown(cancel_futures=True)
    return found


def in_process(job: Sequence[str], options: Sequence[str]) -> Rows:
    """Compute a job in a new process; one that ends early is a row."""
    done = subprocess.run([sys.executable, __file__, *options, "--job", *job], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return [{"job": " ".join(job), "reason": f"its process ended with exit status {done.returncode}"}]
    return json.loads(done.stdout.splitlines()[-1])


def save(found: Rows) -> None:
    """Save what has been found so far: a machine that is lent for a while may be gone before the last form."""
    folder = os.environ.get("ORDINATE_BENCH_RESULTS")
    if folder:
        (Path(folder) / "proofs-all.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def tested_mixers(width: int) -> Rows:
    """Differentiate a decoder with a layer of each mixer, and rotate: kernels are compared before they are used."""
    shape = Shape(
        vocabulary=16,
        width=4 * width,
        layers=len(MIXERS),
        heads=4,
        max_length=200,
        mixer=",".join(MIXERS),
        scheme="none",
    )
    where, ids = Geometry.causal(200), torch.randint(16, (2, 200))
    Decoder(shape)(ids).square().mean().backward()
    for type in TYPES:
        x = torch.randn(2, 1, 4, 200, width, dtype=getattr(torch, type))
        Rope(head_width=width).at(where).encode(*x.unbind())
    return [{"operator": name, "form": str(form), "reason": reason} for (name, *form), reason in proved().items()]


def tested(type: torch.dtype, width: int, shape: str, *, quick: bool) -> Rows:
    """Test all backends with some schemes and options at one dtype, head width and geometry."""
    made = {
        "none": NoPosition(),
        "t5": T5(heads=4),
        "alibi": Alibi(heads=4),
        "fire": Fire(heads=4),
        "shaw": Shaw(head_width=width),
    }
    made["toeplitz"] = Toeplitz(heads=4, max_length=8192)
    made = {name: made[name] for name in ("none", "t5")} if quick else made
    rows = []
    options = {"": ScoreOptions(), "softcap, sinks": ScoreOptions(30.0, torch.zeros(4))}
    for (name, scheme), (said, option), gradients in itertools.product(made.items(), options.items(), (True, False)):
        where = GEOMETRIES[shape]()
        q = torch.randn(1, 4, where.shape[0], width, dtype=type)
        k, v = torch.randn(2, 1, 2, where.shape[1], width, dtype=type).unbind()
        call = AttentionCall(q, k, v, scheme.at(where), width**-0.5, 0.0, option)
        for backend, candidate in backends().items():
            skipped = set(option.in_use) - candidate.supported_options
            if skipped or backend in ("compiled", "context_parallel", "reference"):
                continue
            row = {"backend": backend, "scheme": name, "type": str(type), "width": str(width), "geometry": shape}
            try:
                # not asked for a proof: it is what is computed here
                unfit = candidate.unsupported_reason(call)
                if unfit is not None and "small case" not in unfit:
                    continue
                reason = disagreement(candidate, call, gradients=gradients)
            except Exception as error:
                reason = f"{error.__class__.__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            rows.append({**row, "options": said, "gradients": str(gradients), "reason": reason})
    return rows


if __name__ == "__main__":
    main()
