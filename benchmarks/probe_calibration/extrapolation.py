"""Cells of the probe extrapolation: documents of different difficulty, with and without harm by longer context."""

import functools

import torch

from benchmarks.probe_calibration._cell import Cell, Outcome, Reading
from ordinate.probing._adapter import ForwardOutput, Hooks, Inputs
from ordinate.probing._probe import ProbeData
from ordinate.probing.probes.extrapolation import Extrapolation
from ordinate.testing.analytic_model import AnalyticModel

TEXTS, TRAINED, LENGTH, VOCABULARY = 32, 16, 64, 50
SIZE = f"{TEXTS} documents of {LENGTH} tokens, trained at {TRAINED}"
NAMES = {times: f"increase with {times * TRAINED} tokens of context in place of {TRAINED}" for times in (2, 4)}
# variance of the noise in the logits, within the trained length and, in the second cell, beyond it
WITHIN, BEYOND = 0.1, 1.0


class Unigrams(AnalyticModel):
    """Counts the tokens before, no further back than the shortest context; its logits get noise.

    Args:
        seed: of the noise.
        beyond: variance of the noise beyond the trained length.
    """

    def __init__(self, seed: int, beyond: float) -> None:
        super().__init__("rope", layers=1)
        self.draw, self.beyond = torch.Generator().manual_seed(seed), beyond

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        found, ids = super().forward(inputs, watch), inputs.ids
        assert ids is not None
        seen = torch.nn.functional.one_hot(ids, VOCABULARY).double()
        # of the counts, longer context is neither help nor harm
        reach = torch.arange(ids.shape[1])
        near = (reach[:, None] - reach >= 0) & (reach[:, None] - reach < TRAINED // 2)
        logits = (near.double() @ seen + 0.1).log()
        noise = torch.randn(logits.shape, dtype=torch.float64, generator=self.draw)
        variance = torch.where(reach < TRAINED, WITHIN, self.beyond)
        return ForwardOutput(found.residual, logits + variance.sqrt()[:, None] * noise)


def documents(seed: int) -> ProbeData:
    """Documents that each use few tokens of their own: another document before them would do harm."""
    draw = torch.Generator().manual_seed(seed)
    own = torch.rand(TEXTS, VOCABULARY, generator=draw).log().mul(-3).neg().exp() + 1e-3
    return ProbeData(torch.multinomial(own, LENGTH, replacement=True, generator=draw), None, "documents")


def measured(seed: int, beyond: float) -> Outcome:
    """The increase by longer context, which is 0 if there is no more noise than within the trained length."""
    model, harm = Unigrams(seed, beyond), beyond > WITHIN
    found = Extrapolation(shifts=(1,), trained_length=TRAINED).measure(model, documents(seed), seed)
    named = {one.name: one for one in found.estimates}
    readings = {name: Reading.of(named[name], None if harm else 0.0) for name in NAMES.values()}
    if harm:
        return Outcome(readings, true={"it cannot read further": found.grade == "no"})
    graded = {"it cannot read further": found.grade == "no", "it degrades": found.grade == "weakly"}
    return Outcome(readings, false=graded, true={"it can read further": found.grade == "yes"})


CELLS = tuple(
    Cell(f"{name}: {SIZE}", functools.partial(measured, beyond=beyond))
    for name, beyond in (("longer context without effect", WITHIN), ("noise in the logits beyond", BEYOND))
)
