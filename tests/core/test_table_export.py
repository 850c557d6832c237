import csv
import sys
from types import SimpleNamespace

import pytest

from ordinate.core.finding import Table
from ordinate.core.table_export import data_frame, save_table

TABLE = Table(title="t", columns=("head", "value"), rows=(("=1+1", 1 / 3), ("b, c", None)))


def test_a_csv_file_has_full_precision_and_no_formulas(tmp_path):
    path = save_table(TABLE, tmp_path / "t.csv")
    assert list(csv.reader(path.read_text().splitlines())) == [
        ["head", "value"],
        ["'=1+1", repr(1 / 3)],
        ["b, c", ""],
    ]
    assert not list(tmp_path.glob(".*"))


def test_another_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"tables are written as \.csv or \.parquet; got '\.xlsx'; give one of them"):
        save_table(TABLE, tmp_path / "t.xlsx")


def test_without_its_package_a_format_is_refused_by_name(tmp_path, monkeypatch):
    for module in ("pyarrow", "pyarrow.parquet", "pandas"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ValueError, match=r"a Parquet file needs pyarrow; it is not installed; install it \(pip install py"
    ):
        save_table(TABLE, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"a data frame needs pandas; it is not installed; install it \(pip install"):
        data_frame(TABLE)
    assert not list(tmp_path.iterdir())


def test_columns_go_to_parquet_and_rows_to_pandas(tmp_path, monkeypatch):
    """The packages are optional: what they are called with."""
    said = []
    arrow = SimpleNamespace(table=said.append)
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(
        sys.modules, "pyarrow.parquet", SimpleNamespace(write_table=lambda table, sink: sink.write(b"PAR1"))
    )
    assert save_table(TABLE, tmp_path / "t.parquet").read_bytes() == b"PAR1"
    assert said == [{"head": ["=1+1", "b, c"], "value": [1 / 3, None]}]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns)))
    assert data_frame(TABLE) == (list(TABLE.rows), ["head", "value"])
