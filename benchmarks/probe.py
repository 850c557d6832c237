"""What asking costs: minutes and memory of each question, of a random model of the shape of GPT-2 small.

Each question is asked in a process of its own, of 64 texts of 512 random tokens, by as many threads as there are
cores. Memory is the most that the process held, less what it held when the model had been attached.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.saving import save
from ordinate import catalog

TEXTS, TOKENS = 64, 512
QUICK = (16, 128)
GIB = 1 << 30


def held() -> int:
    """What this process holds now [bytes]."""
    pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * resource.getpagesize()


def ask(question: str, texts: int, tokens: int) -> dict[str, float]:
    """Ask one question: minutes, and GiB above the model."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from ordinate.attachment import attach
    from ordinate.lab.conduct import Question, answer
    from ordinate.probe import Material

    torch.manual_seed(0)
    subject = attach(GPT2LMHeadModel(GPT2Config()).eval(), name="gpt2")
    material = Material(torch.randint(50257, (texts, tokens)), None, "random tokens", natural=False)
    before, begin = held(), time.perf_counter()
    finding = answer(Question(question, {}), subject, material, 0, lambda done: None)
    if finding.status != "measured":
        raise SystemExit(finding.answer)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"minutes": (time.perf_counter() - begin) / 60, "GiB": (most - before) / GIB}


def main(keep: bool, *, quick: bool = False) -> None:
    """Ask all questions, and print a table."""
    sizes, found = QUICK if quick else (TEXTS, TOKENS), {}
    print(
        f"{sizes[0]} texts of {sizes[1]} tokens, {torch.get_num_threads()} threads\n{'':16}{'minutes':>9}{'GiB':>9}"
    )
    for question in catalog.names("ordinate.probes"):
        command = [sys.executable, "-m", "benchmarks.probe", question, *map(str, sizes)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[question] = json.loads(said.splitlines()[-1])
        print(f"{question:16}{found[question]['minutes']:9.2f}{found[question]['GiB']:9.2f}", flush=True)
    whole = {
        "minutes": sum(one["minutes"] for one in found.values()),
        "GiB": max(one["GiB"] for one in found.values()),
    }
    print(f"{'all':16}{whole['minutes']:9.2f}{whole['GiB']:9.2f}")
    if keep:
        print(save("probe", {"texts": sizes[0], "tokens": sizes[1], "all": whole} | found))


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
