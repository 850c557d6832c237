"""Checks of decoding with a cache: one token at a time, and past the trained length."""

from typing import Any, cast

import torch

from ordinate.mixers.mamba2 import Mamba2
from ordinate.models.shape import Shape
from ordinate.pretrained.verification._check import Check
from ordinate.pretrained.verification._runner import Runner, TextRunner
from ordinate.pretrained.verification.lengths import changing_length, table_length
from ordinate.pretrained.verification.outputs import Results, difference
from ordinate.pretrained.verification.result import CheckResult
from ordinate.pretrained.verification.tolerance import angle_rounding, float32_tolerance, measured_rounding

LOGITS, STEPS, AT_ONCE = "logits", "one token at a time", "all at once"
RATES = "cached keys keep the rates of a shorter text, in both libraries: the two ways differ"
APART = "the two ways differ in transformers: those of Ordinate are not judged against each other"
LIMITS = "transformers leaves the limits of step sizes out for single tokens: it is not judged there"
NO_CACHE = "the model reads its whole input at once"
# tokens decoded before the trained length, and past it
BEFORE, PAST = 6, 6


class DecodingCheck(Check):
    """A text read one token at a time with a cache, against the same text read at once."""

    name = "decoding"
    about = "a text read one token at a time with a cache, against all at once"
    relative_cost = 8.0

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        text = cast(TextRunner, runner).draw_text(runner.tokens)
        self.text, self.start, self.first = text, 0, max(len(text.ids) // 3, 1)

    @classmethod
    def reason(cls, runner: Runner) -> str | None:
        return None if runner.decodes else NO_CACHE

    def ours(self, model: Any) -> Results:
        return self.results(model, ours=True)

    def theirs(self, model: Any) -> Results:
        return self.results(model, ours=False)

    def results(self, model: Any, *, ours: bool) -> Results:
        """Compute the logits in both ways."""
        runner = cast(TextRunner, self.runner)
        ways = {STEPS: self.first, AT_ONCE: len(self.text.ids)}
        return {
            way: {LOGITS: torch.cat(list(runner.steps(model, self.text, self.start, first, ours=ours)))}
            for way, first in ways.items()
        }

    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        angle = angle_rounding(self.runner.shape, self.start + len(self.text.ids))
        tolerance, basis = float32_tolerance(measured_rounding(theirs, exact), angle)
        # beyond the trained length of some models, the two ways differ in both libraries
        same = difference("", theirs[STEPS], theirs[AT_ONCE]).error <= tolerance
        limited, between = _limits_steps(self.runner.shape), "Ordinate and transformers"
        found = [
            difference(f"{between}, {STEPS}", ours[STEPS], theirs[STEPS], judged=same or not limited),
            difference(f"{between}, {AT_ONCE}", ours[AT_ONCE], theirs[AT_ONCE]),
            difference(f"Ordinate, {STEPS} and {AT_ONCE}", ours[STEPS], ours[AT_ONCE], judged=same or limited),
        ]
        reason = LIMITS if limited else RATES if changing_length(self.runner.shape) else APART
        note = "" if same else reason
        return CheckResult.judge(self.name, self.about, found, tolerance, basis, note)


def _limits_steps(shape: Shape) -> bool:
    """Whether some layer has Mamba-2 with limits of its step sizes."""
    with torch.device("meta"):
        mixers = [shape.make_mixer(layer) for layer in range(shape.layers)]
    return any(isinstance(mixer, Mamba2) and mixer.variant.limits != (None, None) for mixer in mixers)


class TrainedLengthCheck(DecodingCheck):
    """Decoding past the trained length, for schemes that change there."""

    name = "trained length"
    about = "decoding from just before the trained length to just past it"

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.text = cast(TextRunner, runner).draw_text(BEFORE + PAST)
        before = min(BEFORE, changing_length(runner.shape) or BEFORE)
        # the first tokens stand just before the trained length: the texts before them are not needed
        self.start, self.first = (changing_length(runner.shape) or 0) - before, max(before - 2, 1)

    @classmethod
    def reason(cls, runner: Runner) -> str | None:
        if not runner.decodes:
            return NO_CACHE
        limit = table_length(runner.shape)
        if limit is not None:
            return f"its table of positions ends at {limit}, and Ordinate refuses the next token"
        return None if changing_length(runner.shape) else "its positions are encoded in one way at every length"
