"""Small decoders trained on the standard library for 400 steps, and what a change of their positions costs."""

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from benchmarks.questions._number import Numbers, averaged
from ordinate import Decoder, Geometry
from ordinate.core.shapes import Positions
from ordinate.data.heldout_segments import segments
from ordinate.data.token_store import TokenStore, open_store
from ordinate.models import transplant
from ordinate.ops.rotate import Rotation
from ordinate.pretrained.read_model import read_model
from ordinate.schemes import Learned, Rope
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study

BASE = "rope"
OTHERS = {
    "theta 500,000": "rope:theta=500000",
    "half of the channels rotated": "rope:rotary_dim=12",
    "no positions in every third layer": "rope,rope,none",
}
STEPS, LENGTH, FILES, LATE, UNIT = 400, 128, 64, 8192, "bits per byte"


class Rounded(Rope):
    """RoPE whose angles, or only cosines and sines, are rounded to bfloat16."""

    round_angles = True

    def make_encoders(self, pos: Positions) -> tuple[Rotation, Rotation]:
        """Return one rotation for queries and keys."""
        angles = self.angles(pos)
        if self.round_angles:
            # as a module in bfloat16 computes them: positions and rates are rounded too
            rates = self.angles(torch.ones(1, 1, 1)).bfloat16()
            angles = (pos[..., :1].bfloat16() * rates).double()
        cos, sin = (part[:, None].bfloat16().double() for part in (angles.cos(), angles.sin()))
        rotation = Rotation(cos, sin, self.layout)
        return rotation, rotation


def measure(quick: bool) -> Numbers:
    """Train, and return the differences to plain RoPE on the same files."""
    with tempfile.TemporaryDirectory() as folder:
        models, store = trained(Path(folder, "study"), 5 if quick else STEPS)
        short, long = pieces(store, LENGTH), pieces(store, 4 * LENGTH)
        plain = bits(models[BASE], short)
        found: Numbers = {f"rope, {LENGTH} bytes": averaged(plain, UNIT)}
        for title, scheme in OTHERS.items():
            found[f"increase, {title}"] = averaged(bits(models[scheme], short) - plain, UNIT)
        found |= beyond(models, long) | layouts(models[BASE], short) | precision(models[BASE], short)
        return found | values(models[BASE], short) | stretched(models["learned"], pieces(store, 2 * LENGTH))


def trained(folder: Path, steps: int) -> tuple[dict[str, Decoder], TokenStore]:
    """Train a model for each scheme, with the same batches."""
    schemes = (BASE, *OTHERS.values(), "learned")
    plan = resolve(
        Plan(
            schemes=schemes,
            steps=steps,
            generated_texts=0,
            eval_samples=8,
            shuffle_samples=8,
            leader_seeds=0,
            threads=1,
        )
    )
    out = run_study(plan, folder, LocalExecutor(1), "bench questions", lambda _: None, allow_changed_code=True)
    runs = plan.runs()
    models = {str(run.scheme): cast(Decoder, read_model(out.run(run) / "model", "decoder").eval()) for run in runs}
    return models, open_store(folder / "data")


def pieces(store: TokenStore, length: int) -> Tensor:
    """Held-out pieces, each of another file as far as there are so many."""
    return torch.from_numpy(np.stack([one.tokens for one in segments(store, length, FILES)]))


@torch.no_grad()
def bits(model: Decoder, ids: Tensor, first: int = 0) -> np.ndarray[Any, Any]:
    """Mean loss of each piece, with positions from `first` on."""
    where = Geometry.from_positions(first + torch.arange(ids.shape[1] - 1)[None, :, None])
    lost = torch.nn.functional.cross_entropy(model(ids[:, :-1], where).mT, ids[:, 1:], reduction="none")
    return (lost.double().mean(1) / float(np.log(2))).numpy()


def with_scheme(model: Decoder, schemes: Iterator[Rope | Learned]) -> Decoder:
    """A copy with other schemes and the same weights."""
    other = copy.deepcopy(model)
    other.schemes = torch.nn.ModuleList(schemes)
    return other


def beyond(models: dict[str, Decoder], long: Tensor) -> Numbers:
    """Four times the trained length: as it is, with scaling but no training, and with a larger base."""
    plain = bits(models[BASE], long)
    found: Numbers = {f"rope, {4 * LENGTH} bytes": averaged(plain, UNIT)}
    # the shape of these models has room for more than they were trained with
    factors = {name: f"rope:spectrum={name},spectrum.factor=4" for name in ("linear", "ntk", "yarn")}
    factors["yarn"] += f",spectrum.trained_length={LENGTH}"
    for name, scheme in factors.items():
        scaled = transplant(models[BASE], scheme).model
        found[f"increase at {4 * LENGTH} bytes, {name} without training"] = averaged(bits(scaled, long) - plain, UNIT)
    larger = bits(models[OTHERS["theta 500,000"]], long)
    return found | {f"increase at {4 * LENGTH} bytes, theta 500,000": averaged(larger - plain, UNIT)}


def layouts(model: Decoder, short: Tensor) -> Numbers:
    """The weights of one layout read in the other."""
    width = model.schemes[0].head_width
    other = with_scheme(model, iter([Rope(head_width=width, layout="interleaved")]))
    return {"increase, half layout read as interleaved": averaged(bits(other, short) - bits(model, short), UNIT)}


def precision(model: Decoder, short: Tensor) -> Numbers:
    """Angles, or cosines and sines only, in bfloat16, near the beginning of a text and late."""
    found: Numbers = {}
    rounded = Rounded(head_width=model.schemes[0].head_width)
    for name, rounded.round_angles in (("angles", True), ("cosines and sines", False)):
        other = with_scheme(model, iter([rounded]))
        for first in (0, LATE):
            rise = bits(other, short, first) - bits(model, short, first)
            found[f"increase, {name} in bfloat16, positions from {first}"] = averaged(rise, UNIT)
    return found


def values(model: Decoder, short: Tensor) -> Numbers:
    """Values replaced by keys, before rotation."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for block in other.blocks:
            _, key, value = block.mixer.project.weight.chunk(3)
            value.copy_(key)
    return {"increase, values replaced by keys": averaged(bits(other, short) - bits(model, short), UNIT)}


def stretched(model: Decoder, ids: Tensor) -> Numbers:
    """Twice the trained length of a learned table: rows that were never trained, or trained rows interpolated."""
    table: Learned = model.schemes[0]
    head = Learned(width=table.width, max_length=LENGTH)
    with torch.no_grad():
        head.table.copy_(table.table[:LENGTH])
    other = with_scheme(model, iter([head.resized(2 * LENGTH)]))
    shorter = bits(model, ids[:, : LENGTH + 1])
    return {
        f"learned, increase from {LENGTH} to {2 * LENGTH} bytes, untrained rows": averaged(
            bits(model, ids) - shorter, UNIT
        ),
        f"learned, increase from {LENGTH} to {2 * LENGTH} bytes, rows interpolated": averaged(
            bits(other, ids) - shorter, UNIT
        ),
    }
