"""Reports of studies with very many runs: memory, charts and texts."""

import pytest

from ordinate.evaluation.comparison import compare
from ordinate.report.charts import StudyCharts
from ordinate.report.page import study_page
from ordinate.report.read import MAX_ARMS_DRAWN, MAX_LINES, MAX_POINTS, load_study
from ordinate.report.summary import study_tables, summarise
from ordinate.report.table import table_rows


def test_single_documents_and_steps_are_not_kept(write, result):
    run = result("rope", 0)
    run["training"] = {"steps": list(range(1, 601)), "loss": [float(step % 10) for step in range(1, 601)]}
    (kept,) = load_study(write([run])).results
    assert not any("documents" in row for row in kept["lengths"])
    bits, sizes = kept["lengths"][0]["table"]
    assert (len(bits), sizes.sum()) == (40, 40 * 1024)
    assert len(kept["training"]["steps"]) == MAX_POINTS
    assert kept["training"]["steps"][:2] == [10, 20]
    assert set(kept["training"]["loss"]) == {4.5}


@pytest.mark.extended
def test_where_there_are_too_many_the_best_are_drawn_and_the_rest_counted(write, result):
    labels = [f"rope:theta={number}" for number in range(MAX_ARMS_DRAWN + 3)]
    seeds = MAX_LINES // MAX_ARMS_DRAWN + 1
    runs = [
        result(label, seed, level=2 + 0.1 * place, documents=5)
        for place, label in enumerate(labels)
        for seed in range(seeds)
    ]
    study = load_study(write(runs, schemes=labels, seeds=seeds))
    entries = summarise(study)
    charts = StudyCharts(study, entries)
    assert charts.labels == labels[:MAX_ARMS_DRAWN]
    rows = data(charts.training())
    assert {row["scheme"] for row in rows} == set(charts.labels)
    assert len(rows) == len(charts.labels) * len({row["step"] for row in rows})
    html = study_page(study, entries, table_rows(study, entries))
    assert (
        f"Drawn: the {MAX_ARMS_DRAWN} best of {MAX_ARMS_DRAWN + 3} and the first {seeds - 1} of {seeds} seeds."
        in html
    )
    assert all(f'<th scope="row">{label}</th>' in html for label in labels)


def test_where_there_are_few_all_are_drawn(write, result):
    study = load_study(write([result("rope", 0), result("none", 0)]))
    assert StudyCharts(study, summarise(study)).left_out == ""


def test_comparisons_in_both_orders_are_opposite(write, result):
    study = load_study(
        write([result(label, seed) for label in ("rope", "none", "alibi") for seed in range(3)], seeds=3)
    )
    found = compare(study_tables(study, longest=False))
    assert len(found) == len(list(found)) == 6
    for one, other in found:
        assert found[one, other] == found[other, one].reversed()
    assert found["none", "rope"].difference > 0


def data(spec):
    """The values behind a chart."""
    return spec["data"]["values"] if "data" in spec else spec["layer"][0]["data"]["values"]
