"""Checks of outputs: without padding, padded, packed, at other image sizes, in bfloat16."""

from dataclasses import replace
from typing import Any, ClassVar, cast

import torch

from ordinate.core import catalog
from ordinate.models.vision import VisionShape
from ordinate.pretrained.verification._check import Check
from ordinate.pretrained.verification._runner import Runner, TextRunner
from ordinate.pretrained.verification.lengths import changing_length
from ordinate.pretrained.verification.outputs import Results, difference
from ordinate.pretrained.verification.result import CheckResult
from ordinate.pretrained.verification.rows import Layout, Texts
from ordinate.pretrained.verification.runners import VisionRunner
from ordinate.pretrained.verification.tolerance import (
    angle_rounding,
    bfloat16_tolerance,
    float32_tolerance,
    measured_rounding,
)
from ordinate.pretrained.vit_like import VitLike

PLAIN, ALONE, TOGETHER = "plain", "alone", "together"
BOTH = "Ordinate and transformers"
DEPENDS = "in transformers, what a text gives depends on the other texts of its batch: judged {}"


class OutputsCheck(Check):
    """Outputs of both libraries for the same inputs, without padding."""

    name = "outputs"
    about = "the same inputs without padding"

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.inputs = runner.plain_inputs()

    def ours(self, model: Any) -> Results:
        return {PLAIN: self.runner.ours(model, self.inputs)}

    def theirs(self, model: Any) -> Results:
        return {PLAIN: self.runner.theirs(model, self.inputs)}

    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        angle = angle_rounding(self.runner.shape, self.runner.tokens)
        tolerance, basis = float32_tolerance(measured_rounding(theirs, exact), angle)
        found = [difference(BOTH, ours[PLAIN], theirs[PLAIN])]
        return CheckResult.judge(self.name, self.about, found, tolerance, basis, self.note())

    def note(self) -> str:
        """Return what the inputs do not reach."""
        shape, tokens = self.runner.shape, self.runner.tokens
        chunks = [catalog.parse(entry)[1].get("variant", {}).get("chunk") for entry in shape.mixer_spec.entries]
        found = {"sliding window": shape.layer_windows, "attention chunk": chunks}
        longest = {kind: max(int(size or 0) for size in sizes) for kind, sizes in found.items()}
        beyond = [f"the {kind} of {size} tokens" for kind, size in longest.items() if size >= tokens]
        if not self.runner.reads_texts or not beyond:
            return ""
        return f"{' and '.join(beyond)} is not reached: give more --tokens"


class Bfloat16Check(OutputsCheck):
    """Outputs in bfloat16: those of Ordinate are about as close to float32 as those of transformers."""

    name = "bfloat16"
    about = "outputs in bfloat16 against those of transformers in float32"
    dtype = torch.bfloat16
    exact_dtype = torch.float32

    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        tolerance, basis = bfloat16_tolerance(measured_rounding(theirs, exact))
        found = [
            difference("Ordinate in bfloat16 and transformers in float32", ours[PLAIN], exact[PLAIN]),
            difference("both of transformers", theirs[PLAIN], exact[PLAIN], judged=False),
        ]
        return CheckResult.judge(self.name, self.about, found, tolerance, basis)


class PaddingCheck(Check):
    """Texts of different lengths in one batch, padded on one side, against each of them alone."""

    layout: ClassVar[Layout]
    """The side."""
    relative_cost = 2.0

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        texts = cast(TextRunner, runner).texts()
        self.together, self.alone = (Texts(texts, layout, runner.fill) for layout in (self.layout, "alone"))

    @classmethod
    def reason(cls, runner: Runner) -> str | None:
        if runner.reads_first_token and cls.layout == "left":
            return "its classifier reads the first column, which is padding"
        if runner.reads_one_text:
            return "config.json has no pad_token_id: transformers classifies one text at a time"
        return None if runner.reads_texts else "images have no padding"

    def ours(self, model: Any) -> Results:
        return {TOGETHER: self.runner.ours(model, self.together), ALONE: self.runner.ours(model, self.alone)}

    def theirs(self, model: Any) -> Results:
        return {TOGETHER: self.runner.theirs(model, self.together), ALONE: self.runner.theirs(model, self.alone)}

    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        angle = angle_rounding(self.runner.shape, self.runner.tokens)
        alone = ({ALONE: results[ALONE]} for results in (theirs, exact))
        tolerance, basis = float32_tolerance(measured_rounding(*alone), angle)
        own = difference("transformers, padded and alone", theirs[TOGETHER], theirs[ALONE], judged=False)
        both = difference(f"{BOTH}, padded", ours[TOGETHER], theirs[TOGETHER])
        # transformers may count padding among the positions, and rates may follow from the longest text of a batch
        depends = own.error > tolerance
        as_theirs = depends and both.error <= tolerance
        found = [
            difference(
                "Ordinate, padded, and transformers, alone", ours[TOGETHER], theirs[ALONE], judged=not as_theirs
            ),
            difference("Ordinate, padded and alone", ours[TOGETHER], ours[ALONE], judged=not as_theirs),
            replace(both, judged=as_theirs or not depends),
            own,
        ]
        note = DEPENDS.format("by the same batch" if as_theirs else "by each text alone") if depends else ""
        return CheckResult.judge(self.name, self.about, found, tolerance, basis, note)


class LeftPaddingCheck(PaddingCheck):
    """Texts of different lengths in one batch, padded on the left as for generation."""

    name = "left padding"
    about = "texts of three lengths padded on the left, against each alone"
    layout = "left"


class RightPaddingCheck(PaddingCheck):
    """Texts of different lengths in one batch, padded on the right as for training."""

    name = "right padding"
    about = "texts of three lengths padded on the right, against each alone"
    layout = "right"


class PackingCheck(Check):
    """Several texts in one row, each of which attends to itself only, against each of them alone."""

    name = "packing"
    about = "three texts packed into one row, against each alone"
    relative_cost = 2.0

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        texts = cast(TextRunner, runner).texts()
        self.packed, self.alone = (Texts(texts, layout, runner.fill) for layout in ("packed", "alone"))

    @classmethod
    def reason(cls, runner: Runner) -> str | None:
        if runner.reads_whole_texts:
            return "its head reads one text in each row"
        length = changing_length(runner.shape)
        if length is not None and length < runner.tokens:
            return f"beyond its trained length, {length}, the longest text sets the rates of all: give fewer --tokens"
        return None if runner.reads_texts else "images are not packed"

    def ours(self, model: Any) -> Results:
        return {TOGETHER: self.runner.ours(model, self.packed), ALONE: self.runner.ours(model, self.alone)}

    def theirs(self, model: Any) -> Results:
        return {ALONE: self.runner.theirs(model, self.alone)}

    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        angle = angle_rounding(self.runner.shape, self.runner.tokens)
        tolerance, basis = float32_tolerance(measured_rounding(theirs, exact), angle)
        found = [
            difference("Ordinate, packed, and transformers, alone", ours[TOGETHER], theirs[ALONE]),
            difference("Ordinate, packed and alone", ours[TOGETHER], ours[ALONE]),
        ]
        return CheckResult.judge(self.name, self.about, found, tolerance, basis)


class ImageSizesCheck(Check):
    """Images of another size than the trained one, for which the position table is interpolated."""

    name = "image sizes"
    about = "images one patch taller and one patch narrower than the trained size"

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        shape = cast(VisionShape, runner.shape)
        (height, width), patch = shape.image, shape.patch
        self.inputs = cast(VisionRunner, runner).images(height + patch[0], max(width - patch[1], patch[1]))

    @classmethod
    def reason(cls, runner: Runner) -> str | None:
        if runner.reads_texts:
            return "the model reads texts"
        image, patch = (getattr(runner.shape, name) for name in ("image", "patch"))
        # others have no table
        square = not isinstance(runner.family, VitLike) or (image[0] == image[1] and patch[0] == patch[1])
        came = f"{image[0]} by {image[1]} pixels in patches of {patch[0]} by {patch[1]}"
        return None if square else f"transformers interpolates tables of square images and patches only; got {came}"

    def ours(self, model: Any) -> Results:
        return {PLAIN: self.runner.ours(model, self.inputs)}

    def theirs(self, model: Any) -> Results:
        return {PLAIN: self.runner.theirs(model, self.inputs)}

    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        tolerance, basis = float32_tolerance(measured_rounding(theirs, exact), 0.0)
        found = [difference(BOTH, ours[PLAIN], theirs[PLAIN])]
        return CheckResult.judge(self.name, self.about, found, tolerance, basis)
