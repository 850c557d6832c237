"""The tables of the benchmark of mixers, for people."""

from typing import Any

from benchmarks.attention.measuring import Row


def show(title: str, table: dict[str, dict[str, Row]], without: set[str]) -> None:
    """The milliseconds of each member but some, its ratio and its goal at each length."""
    print(f"\n{title:44}" + "".join(f"{f'N {tokens}: ms, ratio, goal':>28}" for tokens in table))
    for member in (name for name in next(iter(table.values())) if name not in without):
        print(f"{member:44}" + "".join(_cell(rows.get(member)) for rows in table.values()), flush=True)


def _cell(row: Row | None) -> str:
    if row is None:
        return f"{'-':>21}{'':7}"
    cell = f"{row['seconds'] * 1e3:12.1f}{row['ratio']:9.3f}"
    if "goal" not in row:
        return f"{cell}{'':7}"
    return f"{cell}{'*' if row['ratio'] > row['goal'] else ' '}{row['goal']:5.2f} "


def show_memory(points: list[dict[str, Any]]) -> None:
    """Megabytes of each whole mixer, forward and backward, above its inputs."""
    lengths = sorted({point["tokens"] for point in points})
    print(
        f"\n{'forward and backward, MB above the inputs':44}" + "".join(f"{f'N {tokens}':>12}" for tokens in lengths)
    )
    for who in dict.fromkeys(point["who"] for point in points):
        held = {point["tokens"]: point["bytes"] / 1e6 for point in points if point["who"] == who}
        print(f"{who:44}" + "".join(f"{held[n]:12.1f}" if n in held else f"{'-':>12}" for n in lengths), flush=True)
