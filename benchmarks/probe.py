"""Cost of each probe in minutes and memory, on a randomly initialised GPT-2 small.

Each probe runs in its own process on 64 sequences of 512 random tokens, with as many threads as cores. Memory is the
highest resident set of the process, less its resident set after the model was attached.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.harness.saving import save
from ordinate.core import catalog

TEXTS, TOKENS = 64, 512
QUICK = (16, 128)
GIB = 1 << 30


def held() -> int:
    """Return the resident set of this process [bytes]."""
    pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * resource.getpagesize()


def ask(question: str, texts: int, tokens: int) -> dict[str, float]:
    """Run one probe: minutes, and GiB above the model."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from ordinate.core.progress import ignore
    from ordinate.probing._attach import attach
    from ordinate.probing._probe import ProbeData
    from ordinate.probing.runner.probe_runner import ProbeSpec, run_probe

    torch.manual_seed(0)
    subject = attach(GPT2LMHeadModel(GPT2Config()).eval(), name="gpt2")
    material = ProbeData(torch.randint(50257, (texts, tokens)), None, "random tokens", natural=False)
    before, begin = held(), time.perf_counter()
    finding = run_probe(ProbeSpec(question, {}), subject, material, 0, ignore)
    if finding.status != "measured":
        raise SystemExit(finding.answer)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"minutes": (time.perf_counter() - begin) / 60, "GiB": (most - before) / GIB}


def main(keep: bool, *, quick: bool = False) -> None:
    """Run all probes, and print a table."""
    sizes, found = QUICK if quick else (TEXTS, TOKENS), {}
    print(
        f"{sizes[0]} sequences of {sizes[1]} tokens, {torch.get_num_threads()} threads\n"
        f"{'':28}{'minutes':>9}{'GiB':>9}"
    )
    for question in catalog.names("ordinate.probing.probes"):
        command = [sys.executable, "-m", "benchmarks.probe", question, *map(str, sizes)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[question] = json.loads(said.splitlines()[-1])
        print(f"{question:28}{found[question]['minutes']:9.2f}{found[question]['GiB']:9.2f}", flush=True)
    whole = {
        "minutes": sum(one["minutes"] for one in found.values()),
        "GiB": max(one["GiB"] for one in found.values()),
    }
    print(f"{'all':16}{whole['minutes']:9.2f}{whole['GiB']:9.2f}")
    if keep:
        print(save("probe", {"texts": sizes[0], "tokens": sizes[1], "all": whole} | found))


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
