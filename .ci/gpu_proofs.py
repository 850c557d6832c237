"""Prints which backends of attention, and which kernels of mixers, agree with the plain formulas on a device.

In small cases of many forms, which many processes compile: on a GPU that takes nearly all of the time.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Sequence

import torch
from jobs import Rows, run, told

from ordinate import Decoder, Geometry, Shape
from ordinate.attention._backend import AttentionCall, ScoreOptions, backends
from ordinate.attention._proof_case import disagreement
from ordinate.ops.triton.proofs import found as proved
from ordinate.schemes import T5, Alibi, Fire, NoPosition, Rope, Shaw, Toeplitz

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
    parser.add_argument(
        "--job", nargs="+", help="a type, a width, a geometry and flex or others, or mixers and a width"
    )
    chosen = parser.parse_args()
    if chosen.job:
        with torch.device(chosen.device):
            print(json.dumps(computed(chosen.job, quick=chosen.quick)))
        return
    types, widths = (TYPES[-1:], (16,)) if chosen.quick else (TYPES, (64, 128, 40))
    shapes = ["causal", "packed"] if chosen.quick else list(GEOMETRIES)
    # at one width: each form of each kernel is compiled first
    jobs = [["mixers", str(widths[0])]]
    # FlexAttention, whose compilation takes by far the longest, after all others
    forms = itertools.product(("others", "flex"), types, widths, shapes)
    jobs += [[type, str(width), shape, part] for part, type, width, shape in forms]
    options = ["--device", chosen.device, *(["--quick"] if chosen.quick else [])]
    # 1: the process of a job ended early
    sys.exit(min(1, told(run(__file__, jobs, options, "proofs-all"))))


def computed(job: Sequence[str], *, quick: bool) -> Rows:
    """Compute a job, given in words."""
    if job[0] == "mixers":
        return tested_mixers(int(job[1]))
    type, width, shape, part = job
    left_out = {"compiled", "context_parallel", "reference"}
    named = [name for name in backends() if name not in left_out and (name == "flex") == (part == "flex")]
    return tested(getattr(torch, type), int(width), shape, named, quick=quick)


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


def tested(type: torch.dtype, width: int, shape: str, named: Sequence[str], *, quick: bool) -> Rows:
    """Test the named backends with some schemes and options at one dtype, head width and geometry."""
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
        for backend in named:
            candidate = backends()[backend]
            if set(option.in_use) - candidate.supported_options:
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
