"""Cells of the probe position_retention: residual streams with no position, and with a known amount of it."""

from benchmarks.probe_calibration._cell import DEAR_DRAWS, Cell, Outcome, Reading
from benchmarks.probe_calibration._synthetic import token_vectors, zipf_tokens
from ordinate.ops.linear_readout import nearest_mean_accuracy
from ordinate.probing.measures.formatting import mean_estimate

TEXTS, PLACES, WIDTH = 64, 63, 64


def blind(seed: int) -> Outcome:
    """Vectors of tokens, without any position."""
    x = token_vectors(zipf_tokens(TEXTS, PLACES, seed), WIDTH)
    right = mean_estimate("", nearest_mean_accuracy(x).numpy(), seed, "share", 1 / PLACES)
    return Outcome({"positions recovered by nearest mean": Reading.of(right, 1 / PLACES)})


CELLS = (Cell(f"no position: {TEXTS} texts of {PLACES} Zipf tokens", blind, DEAR_DRAWS),)
