"""The tables of the benchmark of attention, for people."""

from benchmarks.attention.measuring import Row

Table = dict[str, dict[str, Row]]


def show(title: str, table: Table) -> None:
    """Each member's ratio beside its goal, for each type."""
    print(f"\n{title:44}" + "".join(f"{name + ', goal':>22}" for name in table))
    for member in next(iter(table.values())):
        print(f"{member:44}" + "".join(_cell(rows[member]) for rows in table.values()), flush=True)


def _cell(row: Row) -> str:
    if "goal" not in row:
        return f"{row['ratio']:14.3f}{'':8}"
    missed = "*" if row["ratio"] > row["goal"] else " "
    return f"{row['ratio']:14.3f}{missed}{row['goal']:6.2f} "


def show_errors(table: Table) -> None:
    """Each member's errors beside those of PyTorch's attention, with a star where they are above."""
    kinds = ("output", "gradient", "far")
    for name, rows in table.items():
        print(f"\n{'error against float64 / of sdpa, ' + name:44}" + "".join(f"{kind:>19}" for kind in kinds))
        for member, row in rows.items():
            cells = (_error(row[kind], row[f"{kind} of sdpa"]) for kind in kinds if kind in row)
            print(f"{member:44}" + "".join(cells), flush=True)


def _error(error: float, usual: float) -> str:
    # equal in the digits that are shown is equal
    shown, limit = f"{error:.1e}", f"{usual:.1e}"
    return f"{shown:>9} / {limit}" + ("*" if float(shown) > float(limit) else " ")
