"""Run the benchmarks: `python -m benchmarks [--save] [--quick] [NAME ...]`."""

import argparse
import importlib
import inspect
import pkgutil

import benchmarks


def main() -> None:
    """Run the named benchmarks, or all, and print their tables."""
    known = sorted({module.name for module in pkgutil.iter_modules(benchmarks.__path__)} - {"__main__", "harness"})
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)}; all if none is named")
    parser.add_argument("--save", action="store_true", help="write each result to benchmarks/results/")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds, where supported")
    chosen = parser.parse_args()
    for name in chosen.names or known:
        if name not in known:
            parser.error(f"no benchmark is named {name!r}; there are: {', '.join(known)}")
        measure = importlib.import_module(f"benchmarks.{name}").main
        if chosen.quick and "quick" not in inspect.signature(measure).parameters:
            parser.error(f"the benchmark {name!r} does not support --quick; leave it out")
        measure(chosen.save, **({"quick": True} if chosen.quick else {}))


if __name__ == "__main__":
    main()
