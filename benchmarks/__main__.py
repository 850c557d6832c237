"""Run the benchmarks: `python -m benchmarks [--save] [--quick] [--device cuda] [NAME ...]`."""

import argparse
import importlib
import inspect
import pkgutil

import torch

import benchmarks


def main() -> None:
    """Run the named benchmarks, or all, and print their tables."""
    known = sorted({module.name for module in pkgutil.iter_modules(benchmarks.__path__)} - {"__main__", "harness"})
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)}; all if none is named")
    parser.add_argument("--save", action="store_true", help="write each result to benchmarks/results/")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds, where supported")
    parser.add_argument("--device", help="a GPU, cuda or cuda:1, where supported; cpu: a rehearsal of the same")
    chosen = parser.parse_args()
    if chosen.device and torch.device(chosen.device).type == "cuda" and not torch.cuda.is_available():
        parser.error(f"--device {chosen.device} needs a GPU that torch.cuda finds; got none; give cpu to rehearse")
    for name in chosen.names or known:
        if name not in known:
            parser.error(f"no benchmark is named {name!r}; there are: {', '.join(known)}")
        measure = importlib.import_module(f"benchmarks.{name}").main
        options = {name: value for name, value in (("quick", chosen.quick), ("device", chosen.device)) if value}
        for option in options:
            if option not in inspect.signature(measure).parameters:
                parser.error(f"the benchmark {name!r} does not support --{option}; leave it out")
        measure(chosen.save, **options)


if __name__ == "__main__":
    main()
