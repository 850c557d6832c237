"""Cells of the probe order_sensitivity: exchangeable tokens, models that ignore order, and one that needs it."""

import functools

import torch

from benchmarks.probe_calibration._cell import Cell, Outcome, Reading
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.probing._adapter import ForwardOutput, Hooks, Inputs
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.probes.order_sensitivity import OrderSensitivity
from ordinate.testing.analytic_model import AnalyticModel

TEXTS, LENGTH, VOCABULARY = 16, 24, 50
SHUFFLED = ("increase, shuffled in pairs", "increase, shuffled completely")
REMOVED = "increase, without position encoding"
SIZE = f"{TEXTS} texts of {LENGTH} tokens"


class Counting(AnalyticModel):
    """Predicts the next number after each token with these log-odds, which is right in texts that count.

    Args:
        odds: logit of the next number; that of all others is 0.
    """

    def __init__(self, odds: float) -> None:
        super().__init__("learned", layers=1)
        self.odds = odds

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        found, ids = super().forward(inputs, watch), inputs.ids
        assert ids is not None
        after = torch.nn.functional.one_hot((ids + 1) % VOCABULARY, VOCABULARY).double()
        return ForwardOutput(found.residual, self.odds * after)


def random_tokens(seed: int) -> ProbeData:
    """Independent tokens: shuffling does not change their distribution."""
    draw = torch.Generator().manual_seed(seed)
    return ProbeData(torch.randint(VOCABULARY, (TEXTS, LENGTH), generator=draw), None, "random tokens")


def exchangeable(seed: int) -> Outcome:
    """A model with positions on tokens without order: the true increase by shuffling is 0."""
    found = OrderSensitivity().measure(AnalyticModel("learned", layers=1), random_tokens(seed), seed)
    named = {one.name: one for one in found.estimates}
    # the encoding of a random model is removed: its effect has no closed form
    readings = {name: Reading.of(named[name], 0.0) for name in SHUFFLED} | {REMOVED: Reading.of(named[REMOVED])}
    windows = {"some window size has an effect": any(row[4] < 0.05 for row in found.tables[0].rows)}
    return Outcome(readings, false={"order matters": found.grade in ("yes", "weakly")} | windows)


def counting(seed: int, odds: float) -> Outcome:
    """Texts that count up, with every fifth token replaced at random, and a model that expects it."""
    draw = torch.Generator().manual_seed(seed)
    ids = (torch.arange(LENGTH) + torch.randint(VOCABULARY, (TEXTS, 1), generator=draw)) % VOCABULARY
    noise = torch.randint(VOCABULARY, ids.shape, generator=draw)
    ids = torch.where(torch.rand(ids.shape, generator=draw) < 0.2, noise, ids)
    found = OrderSensitivity().measure(Counting(odds), ProbeData(ids, None, "numbers"), seed)
    named = {one.name: one for one in found.estimates}
    return Outcome({name: Reading.of(named[name]) for name in SHUFFLED}, true={"order matters": found.grade == "yes"})


def blind(seed: int, dtype: torch.dtype) -> Outcome:
    """An encoder without positions: permuting tokens permutes its output, up to rounding."""
    return _encoder(seed, "none", dtype, matters=False)


def rotary(seed: int, dtype: torch.dtype) -> Outcome:
    """An encoder with rotary positions."""
    return _encoder(seed, "rope", dtype, matters=True)


def _encoder(seed: int, scheme: str, dtype: torch.dtype, *, matters: bool) -> Outcome:
    torch.manual_seed(seed)
    shape = EncoderShape(vocabulary=VOCABULARY, width=32, heads=2, layers=3, scheme=scheme)
    model = attach(Encoder(shape).eval().to(dtype))
    found = OrderSensitivity(windows=(2,)).measure(model, random_tokens(seed), seed)
    says = "It ignores order" not in found.answer
    claims = {"it is sensitive to order": says}
    return Outcome(true=claims) if matters else Outcome(false=claims)


def cells() -> tuple[Cell, ...]:
    """All cells."""
    encoders = [
        Cell(f"encoder {name}, {str(dtype)[6:]}: {SIZE}", functools.partial(draw, dtype=dtype))
        for name, draw in (("without positions", blind), ("with rope", rotary))
        for dtype in (torch.float32, torch.bfloat16)
    ]
    return (
        Cell(f"exchangeable tokens, learned positions: {SIZE}", exchangeable),
        Cell(f"tokens that count up, expected with log-odds 3: {SIZE}", functools.partial(counting, odds=3.0)),
        *encoders,
    )


CELLS = cells()
