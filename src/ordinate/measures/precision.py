"""How exactly positions are told apart in few digits: by arithmetic, and in a model's own numbers."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.finding import Chart, Estimate, Line, Table
from ordinate.measures.presenting import Sample
from ordinate.measures.turning import turns
from ordinate.subject import Subject, Unfit

KINDS = (torch.float32, torch.bfloat16, torch.float16)
WIDTH, THETA = 64, 10_000.0
PLACES = tuple(2**power for power in (8, 10, 12, 14, 17))
# rows of a table that are held against each other
ROWS = 2048
CAPTION = (
    f"Sines and cosines of {WIDTH // 2} frequencies down from 1, base {THETA:,.0f}. All in this type: positions, "
    "angles and waves. Angles in float32: the waves alone are held in it, as in most models of today. Of two waves "
    "the largest difference is 2. This is arithmetic and of no model."
)


def rounding_table(positions: Sequence[int] = PLACES) -> Table:
    """What is left of a position in few digits: by arithmetic."""
    rows = []
    for kind in KINDS:
        for place in positions:
            kept = torch.tensor(float(place + 1)).to(kind)
            apart = "yes" if float(kept) == place + 1 else "no"
            errors = wave_error(place, kind), wave_error(place, kind, angles=torch.float32)
            rows.append((_named(kind), place, apart, *errors))
    columns = ("held in", "position", "the next position is kept", "error of its waves, all in this type",
               "error, angles in float32")  # fmt: skip
    return Table(title="What is left of a position in few digits", columns=columns, rows=tuple(rows), caption=CAPTION)


def wave_error(place: int, kind: torch.dtype, angles: torch.dtype | None = None) -> float:
    """The largest error of a sine or cosine of a position; 2 where it overflows.

    Args:
        place: the position.
        kind: what waves are held in.
        angles: what positions and angles are held in; None: as the waves.
    """
    inner = kind if angles is None else angles
    rates = THETA ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    exact, turned = place * rates, torch.tensor(float(place)).to(inner) * rates.to(inner)
    if not turned.isfinite().all():
        return 2.0
    errors = [(wave(turned).to(kind).double() - wave(exact)).abs().max() for wave in (torch.sin, torch.cos)]
    return float(max(errors))


def turning_errors(subject: Subject, text: Tensor, width: int) -> dict[int, float]:
    """By how much queries and keys that are far on are turned otherwise than those in front, as far apart.

    Of unit vectors in the first layer that turns them, the largest difference; of exact numbers it is 0.

    Args:
        subject: the model.
        text: any tokens.
        width: of a head.

    Raises:
        Unfit: it cannot be told other positions.
    """
    chosen = Sample(text[None], None, 0, None)
    own, found = turns(subject, chosen, width), dict[int, float]()
    if not own:
        return found
    layer, end = min(own), subject.facts.max_length
    for place in PLACES:
        if end is not None and place + len(text) > end:
            break
        there = turns(subject, chosen, width, place)[layer]
        found[place] = float((there - own[layer]).abs().max())
    return found


def table_errors(subject: Subject) -> dict[str, float]:
    """How far a row of the table of positions is moved by rounding, beside its distance to the nearest other row.

    The largest of all rows, by type; from 0.5 on a row may be taken for its neighbour.

    Raises:
        Unfit: nothing is added to tokens.
    """
    rows = subject.position_table(min(ROWS, subject.facts.max_length or ROWS)).double().cpu()
    apart = torch.cdist(rows, rows).fill_diagonal_(torch.inf).amin(1).clamp(min=1e-300)
    return {_named(kind): _moved(rows, apart, kind) for kind in KINDS[1:]}


def _moved(rows: Float[Tensor, "places width"], apart: Float[Tensor, "places"], kind: torch.dtype) -> float:
    return float(((rows.to(kind).double() - rows).norm(dim=1) / apart).max())


def precision(subject: Subject, text: Tensor, reasons: dict[str, str]) -> tuple[list[Estimate], list[Chart]]:
    """What is left of positions in the model's own numbers, and by arithmetic.

    Args:
        subject: the model.
        text: tokens of it.
        reasons: is told why something was not measured.
    """
    try:
        found = [
            Estimate(
                name=f"a position's row rounded to {kind}", value=value, null=0.0, unit="of the nearest's distance"
            )
            for kind, value in table_errors(subject).items()
        ]
    except Unfit:
        found = []
    errors = dict[int, float]()
    try:
        errors = turning_errors(subject, text[:32], _head_width(subject))
    except Unfit as reason:
        reasons["how exactly positions turn"] = str(reason)
    held = _named(subject.facts.dtype)
    if errors:
        place = max(errors)
        name = f"error of what turns queries and keys at position {place:,}, in {held}"
        found.append(Estimate(name=name, value=errors[place], null=0.0, unit="of 1"))
    return found, [_chart(errors, held)] if errors else []


def _head_width(subject: Subject) -> int:
    return subject.projection(0).query.shape[-1]


def _chart(errors: dict[int, float], held: str) -> Chart:
    def line(name: str, error: Callable[[int], float]) -> Line:
        return Line(name=name, x=tuple(map(float, PLACES)), y=tuple(map(error, PLACES)), null=True)

    lines = [line(f"all in {_named(kind)}", lambda place, kind=kind: wave_error(place, kind)) for kind in KINDS[:2]]
    lines.append(line("waves in bfloat16", lambda place: wave_error(place, torch.bfloat16, angles=torch.float32)))
    # what is nought has no place on a scale of powers
    own = tuple(max(error, 1e-9) for error in errors.values())
    lines.insert(0, Line(name=f"this model, in {held}", x=tuple(map(float, errors)), y=own))
    return Chart(title="How exactly a position is held", x="position", y="error", lines=tuple(lines), scale="log",
                 across="log", caption="Grey: sines and cosines by arithmetic, as the table has them.")  # fmt: skip


def _named(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
