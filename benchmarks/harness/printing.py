"""Tables of results on the terminal."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from benchmarks.harness.workload import Row

Table = dict[str, dict[str, Row]]
"""For each column (a type, or a number of tokens) the row of each contender."""


def show_ratios(title: str, table: Table) -> None:
    """Print the ratio and the goal of each contender, for each type."""
    show(title, [f"{name}, goal" for name in table], 22, _rows(table, _ratio))


def show_times(title: str, table: Table, without: Collection[str]) -> None:
    """Print milliseconds, ratio and goal at each number of tokens, of all contenders but some."""
    rows = ((name, cells) for name, cells in _rows(table, _time) if name not in without)
    show(title, [f"N {tokens}: ms, ratio, goal" for tokens in table], 28, rows)


def show_memory(title: str, points: list[dict[str, Any]]) -> None:
    """Print the megabytes of each contender at each number of tokens."""
    lengths = sorted({point["tokens"] for point in points})
    rows = []
    for who in dict.fromkeys(point["who"] for point in points):
        held = {point["tokens"]: point["bytes"] / 1e6 for point in points if point["who"] == who}
        rows.append((who, [f"{held[n]:12.1f}" if n in held else f"{'-':>12}" for n in lengths]))
    show(title, [f"N {tokens}" for tokens in lengths], 12, rows)


def show_errors(table: Table) -> None:
    """Print each contender's errors beside those of PyTorch's attention, with a star where they are larger."""
    kinds = ("output", "gradient", "far")
    for name, rows in table.items():
        cells = (
            (member, [_error(row[kind], row[f"{kind} of sdpa"]) for kind in kinds if kind in row])
            for member, row in rows.items()
        )
        show(f"error against float64 / of sdpa, {name}", kinds, 19, cells)


def show(title: str, heads: Iterable[str], width: int, rows: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print a table: a title, right-aligned column heads, and the cells of each row."""
    print(f"\n{title:44}" + "".join(f"{head:>{width}}" for head in heads))
    for name, cells in rows:
        print(f"{name:44}" + "".join(cells), flush=True)


def _rows(table: Table, cell: Callable[[Row | None], str]) -> Iterable[tuple[str, list[str]]]:
    for member in next(iter(table.values())):
        yield member, [cell(rows.get(member)) for rows in table.values()]


def _ratio(row: Row | None) -> str:
    if row is None or "goal" not in row:
        return f"{'-':>14}{'':8}" if row is None else f"{row['ratio']:14.3f}{'':8}"
    return f"{row['ratio']:14.3f}{_missed(row)}{row['goal']:6.2f} "


def _time(row: Row | None) -> str:
    if row is None:
        return f"{'-':>21}{'':7}"
    cell = f"{row['seconds'] * 1e3:12.1f}{row['ratio']:9.3f}"
    return f"{cell}{_missed(row)}{row['goal']:5.2f} " if "goal" in row else f"{cell}{'':7}"


def _missed(row: Row) -> str:
    return "*" if row["ratio"] > row["goal"] else " "


def _error(error: float, usual: float) -> str:
    # compared as shown: errors that agree in the printed digits are equal
    shown, limit = f"{error:.1e}", f"{usual:.1e}"
    return f"{shown:>9} / {limit}" + ("*" if float(shown) > float(limit) else " ")
