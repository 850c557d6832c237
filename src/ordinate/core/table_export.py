"""Write a table as CSV or Parquet, or turn it into a pandas data frame."""

import csv
import io
from pathlib import Path
from typing import Any

from ordinate.core.atomic_files import write_bytes, write_text
from ordinate.core.checks import need
from ordinate.core.finding import Table

FORMATS = (".csv", ".parquet")
# packages that are needed for some formats; none of them is a dependency
OPTIONAL = {"a Parquet file": "pyarrow", "a data frame": "pandas"}


def save_table(table: Table, path: str | Path) -> Path:
    """Write a table to a file whose ending names the format: .csv or .parquet.

    Raises:
        ValueError: another ending, or Parquet without pyarrow.
    """
    path = Path(path)
    check_ending(path.suffix)
    if path.suffix == ".csv":
        write_text(path, csv_text(table))
        return path
    arrow, parquet = _optional("pyarrow", "a Parquet file"), _optional("pyarrow.parquet", "a Parquet file")
    columns = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    sink = io.BytesIO()
    parquet.write_table(arrow.table(dict(zip(table.columns, map(list, columns), strict=True))), sink)
    write_bytes(path, sink.getvalue())
    return path


def check_ending(ending: str) -> None:
    """Raise unless tables can be written to files with this ending.

    Raises:
        ValueError: neither .csv nor .parquet, or Parquet without pyarrow.
    """
    need(ending in FORMATS, f"tables are written as {' or '.join(FORMATS)}", f"got {ending!r}", "give one of them")
    if ending == ".parquet":
        _optional("pyarrow", "a Parquet file")


def data_frame(table: Table) -> Any:
    """Return a table as a pandas data frame.

    Raises:
        ValueError: pandas is not installed.
    """
    return _optional("pandas", "a data frame").DataFrame(list(table.rows), columns=list(table.columns))


def csv_text(table: Table) -> str:
    """Return a table as comma-separated values, with numbers in full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([inert_cell(name) for name in table.columns])
    writer.writerows([["" if cell is None else inert_cell(cell) for cell in row] for row in table.rows])
    return out.getvalue()


def inert_cell(value: Any) -> Any:
    """Return a text so that no spreadsheet takes it for a formula; other values as they are."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


def _optional(module: str, use: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        package = OPTIONAL[use]
        remedy = f"install it (pip install {package}), or write CSV"
        raise ValueError(f"{use} needs {package}; it is not installed; {remedy}") from None
