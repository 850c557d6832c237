"""Count the kinds of outcome of wrong inputs at each gate, and write the table of docs/bad-input.md.

`python .ci/kinds.py` tries some 700 inputs, each in a process of its own, and stores the counts in
tests/bad_input/kinds.json. It takes about five minutes.
"""

import json
import multiprocessing
import os
import queue
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "bad_input" / "kinds.json"
# longest time of an input, waiting for the processor included [seconds]
PATIENCE = 120


def one(name: str, seed: int, answers: Any) -> None:
    """Try one input, and send the kind of its outcome and what was said."""
    from tests.bad_input.intake import GATES, outcome

    warnings.simplefilter("ignore")
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    with tempfile.TemporaryDirectory() as folder:
        attempt = GATES[name][0](Random(seed), Path(folder))
        answers.put((attempt.what, *outcome.judge(attempt)))


def count(name: str, inputs: int) -> Counter[str]:
    """Count the kinds of outcome at one gate; whatever is neither clear nor right is printed."""
    kinds, context = Counter[str](), multiprocessing.get_context("fork")
    for seed in range(inputs):
        answers = context.Queue()
        process = context.Process(target=one, args=(name, seed, answers))
        process.start()
        try:
            what, kind, said = answers.get(timeout=PATIENCE)
        except queue.Empty:
            what, kind, said = f"input {seed}", "hanging", "the process has died, or does not end"
            process.kill()
        process.join()
        kinds[kind] += 1
        if kind not in ("clear", "right"):
            print(f"{name}, {what}: {kind}: {said[:300]}")
    return kinds


def main() -> None:
    """Count at every gate, store the counts, and write the page."""
    sys.path[:0] = [str(ROOT)]
    import torch

    from tests.bad_input.intake import GATES, warm

    torch.set_num_threads(1)
    warm()
    found = {name: dict(sorted(count(name, inputs).items())) for name, (_, inputs) in GATES.items()}
    print(sum(map(Counter, found.values()), Counter[str]()))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    subprocess.check_call([sys.executable, str(ROOT / "tests" / "bad_input" / "write_page.py")])


if __name__ == "__main__":
    os.environ.setdefault("ORDINATE_NATIVE", "off")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
