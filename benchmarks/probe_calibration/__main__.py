"""Calibrate some probes: `python -m benchmarks.probe_calibration [--save] [--quick] [--draws 200] [PROBE ...]`."""

import argparse

from benchmarks import probe_calibration

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PROBE", help="which; all if none is named")
    parser.add_argument("--save", action="store_true", help="write the result of each probe to benchmarks/results/")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the draws")
    parser.add_argument("--draws", type=int, help="at most so many draws of a cell")
    chosen, known = parser.parse_args(), probe_calibration.probes()
    if unknown := set(chosen.names) - set(known):
        parser.error(f"no probe has cells by the name {unknown.pop()!r}; there are: {', '.join(known)}")
    probe_calibration.main(chosen.save, chosen.quick, chosen.names, chosen.draws)
