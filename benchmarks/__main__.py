"""Run the benchmarks: `python -m benchmarks [--save] [NAME ...]`."""

import argparse
import importlib

from ordinate import catalog


def main() -> None:
    """Run those named, or all, and print their tables."""
    known = [name for name in catalog.names("benchmarks") if name != "saving"]
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)}; all if none is named")
    parser.add_argument("--save", action="store_true", help="write each result to benchmarks/results/")
    chosen = parser.parse_args()
    for name in chosen.names or known:
        if name not in known:
            parser.error(f"no benchmark is named {name!r}; there are: {', '.join(known)}")
        importlib.import_module(f"benchmarks.{name}").main(chosen.save)


if __name__ == "__main__":
    main()
