"""Cells of the probe privacy: vectors that show nothing, and vectors that show tokens or positions."""

import functools

import torch

from benchmarks.probe_calibration._cell import Cell, Outcome, Reading
from benchmarks.probe_calibration._synthetic import zipf_tokens
from ordinate.probing._adapter import ForwardOutput, Hooks, Inputs
from ordinate.probing._probe import ProbeData
from ordinate.probing.probes.privacy import Privacy
from ordinate.testing.analytic_model import AnalyticModel

TEXTS, LENGTH, VOCABULARY = 32, 24, 50
SIZE = f"{TEXTS} texts of {LENGTH} Zipf tokens"


class Noise(AnalyticModel):
    """An encoder of six layers whose vectors are random, whatever the tokens and positions are.

    Args:
        seed: of the vectors.
        tokens: scale of the token embeddings in them.
    """

    def __init__(self, seed: int, tokens: float = 0.0) -> None:
        super().__init__("none", causal=False, layers=6, seed=seed)
        self.draw, self.scale = torch.Generator().manual_seed(seed), tokens

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        assert inputs.ids is not None
        noise = torch.randn(*inputs.ids.shape, 16, dtype=torch.float64, generator=self.draw)
        return super().forward(Inputs(embeddings=noise + self.scale * self.tokens[inputs.ids]), watch)


def zipf(seed: int) -> ProbeData:
    """Tokens as frequent as words are."""
    return ProbeData(zipf_tokens(TEXTS, LENGTH, seed, VOCABULARY), None, "Zipf tokens")


def noise(seed: int) -> Outcome:
    """Vectors that show nothing: no attack may succeed, and positions are recovered at chance."""
    found = Privacy().measure(Noise(seed), zipf(seed), seed)
    estimates = [one for one in found.estimates if one.name.startswith("positions recovered beyond guessing")]
    readings = {one.name.rpartition(", layer")[0]: Reading.of(one, 0.0) for one in estimates}
    return Outcome(readings, false={"it is not hidden": found.grade in ("no", "weakly")})


def shown(seed: int, scale: float) -> Outcome:
    """Vectors that show the tokens."""
    found = Privacy().measure(Noise(seed, scale), zipf(seed), seed)
    return Outcome(true={"it is not hidden": found.grade in ("no", "weakly")})


CELLS = (
    Cell(f"vectors of noise, six layers: {SIZE}", noise),
    Cell(f"token vectors as large as the noise: {SIZE}", functools.partial(shown, scale=1.0)),
)
