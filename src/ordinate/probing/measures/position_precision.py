"""Precision of positions in low-precision types: by arithmetic, and in a model's own dtype."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.finding import Chart, Estimate, Line, Table
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing.measures.measured import Measured, attempt
from ordinate.probing.measures.relative_rotation import relative_rotations
from ordinate.probing.measures.samples import Sample

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDTH, THETA = 64, 10_000.0
POSITIONS = tuple(2**power for power in (8, 10, 12, 14, 17))
# rows of a table that are compared
ROWS = 2048
CAPTION = (
    f"Sines and cosines of {WIDTH // 2} frequencies down from 1, base {THETA:,.0f}. All in this type: positions, "
    "angles, sines and cosines. Angles in float32: only the sines and cosines are in this type, as in most current "
    "models. The largest possible error is 2. These numbers come from arithmetic, not from a model."
)


def precision_table(positions: Sequence[int] = POSITIONS) -> Table:
    """Table of rounding errors of positions and of their sines and cosines, by type."""
    rows = []
    for kind in DTYPES:
        for place in positions:
            kept = torch.tensor(float(place + 1)).to(kind)
            distinguishable = "yes" if float(kept) == place + 1 else "no"
            errors = sinusoid_error(place, kind), sinusoid_error(place, kind, angle_dtype=torch.float32)
            rows.append((_dtype_name(kind), place, distinguishable, *errors))
    columns = ("type", "position", "next position distinguishable", "error of sines and cosines, all in this type",
               "error, angles in float32")  # fmt: skip
    return Table(
        title="Precision of positions in low-precision types", columns=columns, rows=tuple(rows), caption=CAPTION
    )


def sinusoid_error(position: int, dtype: torch.dtype, angle_dtype: torch.dtype | None = None) -> float:
    """Largest absolute error of the sines and cosines of a position; 2 if the angle overflows.

    Args:
        position: the position.
        dtype: dtype of the sines and cosines.
        angle_dtype: dtype of positions and angles; None: `kind`.
    """
    inner = dtype if angle_dtype is None else angle_dtype
    rates = THETA ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    exact, turned = position * rates, torch.tensor(float(position)).to(inner) * rates.to(inner)
    if not turned.isfinite().all():
        return 2.0
    errors = [(wave(turned).to(dtype).double() - wave(exact)).abs().max() for wave in (torch.sin, torch.cos)]
    return float(max(errors))


def rotation_errors(subject: ModelAdapter, text: Tensor, width: int) -> dict[int, float]:
    """Error of relative rotations of queries and keys at large positions, against the same offsets at position 0.

    The largest absolute difference between the rotation matrices, in the first layer with rotary embedding; 0 in
    exact arithmetic.

    Args:
        subject: the model.
        text: any tokens.
        width: width of a head.

    Raises:
        NotApplicable: the model takes no position ids.
    """
    chosen = Sample(text[None], None, 0, None)
    own, found = relative_rotations(subject, chosen, width), dict[int, float]()
    if not own:
        return found
    layer, end = min(own), subject.info.max_length
    for place in POSITIONS:
        if end is not None and place + len(text) > end:
            break
        there = relative_rotations(subject, chosen, width, place)[layer]
        found[place] = float((there - own[layer]).abs().max())
    return found


def embedding_rounding_errors(subject: ModelAdapter) -> dict[str, float]:
    """Rounding error of position embeddings relative to the distance to the nearest other embedding.

    The maximum over positions, by dtype; from 0.5 on, a position may be confused with its neighbour.

    Raises:
        NotApplicable: the model has no position embeddings.
    """
    rows = subject.position_table(min(ROWS, subject.info.max_length or ROWS)).double().cpu()
    gaps = torch.cdist(rows, rows).fill_diagonal_(torch.inf).amin(1).clamp(min=1e-300)
    return {_dtype_name(kind): _relative_rounding(rows, gaps, kind) for kind in DTYPES[1:]}


def _relative_rounding(
    rows: Float[Tensor, "places width"], gaps: Float[Tensor, "places"], kind: torch.dtype
) -> float:
    return float(((rows.to(kind).double() - rows).norm(dim=1) / gaps).max())


def measure_precision(subject: ModelAdapter, text: Tensor) -> Measured[tuple[list[Estimate], list[Chart]]]:
    """Precision of positions in the model's own embeddings and rotations, beside plain arithmetic.

    Args:
        subject: the model.
        text: tokens of one text.
    """
    try:
        found = [
            Estimate(
                name=f"rounding error of position embeddings in {kind}",
                value=value,
                null=0.0,
                unit="of the distance to the nearest embedding",
            )
            for kind, value in embedding_rounding_errors(subject).items()
        ]
    except NotApplicable:
        found = []
    turned = attempt(
        "precision of rotations",
        lambda: rotation_errors(subject, text[:32], _head_width(subject)),
        otherwise=dict[int, float](),
    )
    errors = turned.value
    held = _dtype_name(subject.info.dtype)
    if errors:
        place = max(errors)
        name = f"error of the rotation of queries and keys at position {place:,}, in {held}"
        found.append(Estimate(name=name, value=errors[place], null=0.0, unit="absolute"))
    return Measured((found, [_chart(errors, held)] if errors else []), turned.missing)


def _head_width(subject: ModelAdapter) -> int:
    return subject.projection(0).query.shape[-1]


def _chart(errors: dict[int, float], held: str) -> Chart:
    def line(name: str, error: Callable[[int], float]) -> Line:
        return Line(name=name, x=tuple(map(float, POSITIONS)), y=tuple(map(error, POSITIONS)), null=True)

    lines = [
        line(f"all in {_dtype_name(kind)}", lambda place, kind=kind: sinusoid_error(place, kind))
        for kind in DTYPES[:2]
    ]
    lines.append(
        line(
            "sines and cosines in bfloat16",
            lambda place: sinusoid_error(place, torch.bfloat16, angle_dtype=torch.float32),
        )
    )
    # 0 cannot be drawn on a logarithmic axis
    own = tuple(max(error, 1e-9) for error in errors.values())
    lines.insert(0, Line(name=f"this model, in {held}", x=tuple(map(float, errors)), y=own))
    return Chart(title="Precision of positions", x="position", y="error", lines=tuple(lines), scale="log",
                 across="log", caption="Grey: sines and cosines by arithmetic, as in the table.")  # fmt: skip


def _dtype_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
