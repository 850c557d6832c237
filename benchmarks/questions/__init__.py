"""Numbers that entries of docs/questions cite and no study has: a file for each subject, with a function `measure`.

`./dev bench --save questions` takes about ten minutes on one core. An entry names the result as
`benchmarks/results/questions`, which is the newest one.
"""

import importlib
import pkgutil

import torch

from benchmarks.harness.saving import save
from benchmarks.questions._number import Numbers


def main(keep: bool, quick: bool = False) -> None:
    """Measure, and print each number with its interval; with `quick` models are trained for a few steps only."""
    torch.set_num_threads(1)
    found: Numbers = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            own = importlib.import_module(f"{__name__}.{module.name}").measure(quick)
            for name, number in own.items():
                print(
                    f"{name}: {number['value']:.4g} [{number['low']}, {number['high']}] {number['unit']}", flush=True
                )
            found |= own
    if keep and not quick:
        print(save("questions", found))
