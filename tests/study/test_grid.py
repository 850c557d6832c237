"""Grids: every combination of factor values is carried out once, and after an edit only the edited cell again."""

import csv
import json
import tomllib
from functools import partial
from pathlib import Path

import pytest

from ordinate.core.atomic_files import read_checksummed
from ordinate.report.build import build_cell, build_report
from ordinate.study.grid import OVERRIDES_KEY, PlanRequest, expand, read_overrides
from ordinate.study.plan import Plan
from ordinate.study.presets import preset
from ordinate.study.study_folder import OtherStudyError, StudyFolder

QUICK = partial(preset, "quick")
FACTORS = {"width": (8, 16), "task": ("copy", "recall"), "schemes": ("none", "rope"), "eval_length_multiples": (1,)}


@pytest.fixture(scope="module")
def study(designed, carried, tmp_path_factory):
    out, plan = tmp_path_factory.mktemp("grid") / "study", designed(**FACTORS)
    return out, plan, carried(plan, out)[1]


def test_every_combination_is_a_cell_and_a_run_is_carried_out_once(study):
    out, plan, done = study
    cells = [cell.values for cell in plan.cells]
    assert cells == [{"task": task, "width": width} for task in FACTORS["task"] for width in FACTORS["width"]]
    assert sorted(done) == sorted({run.name for run in plan.runs()})
    assert len(done) == 8
    results = [read_checksummed(path) for path in (out / "runs").glob("*/result.json")]
    found = sorted((item["run"]["label"], *item["run"]["cell"].values()) for item in results)
    assert found == sorted((label, *cell.values()) for cell in cells for label in FACTORS["schemes"])


def test_a_cell_gives_the_results_of_a_separate_study(designed, carried, study, tmp_path):
    out, plan, _ = study
    run = next(run for run in plan.runs() if run.cell == {"task": "copy", "width": 16} and run.label == "rope")
    alone = designed(width=(16,), task=("copy",), schemes=("rope",), eval_length_multiples=(1,))
    folder, _ = carried(alone, tmp_path / "alone")
    one, other = (
        read_checksummed(where.result(which)) for where, which in ((StudyFolder(out), run), (folder, alone.runs()[0]))
    )
    for section in ("training", "lengths", "parameters"):
        assert one[section] == other[section]


def test_nothing_is_done_twice_and_other_files_are_ignored(carried, study):
    out, plan, _ = study
    foreign = out / "runs" / "rope-width=8-s0"
    foreign.mkdir(exist_ok=True)
    (foreign / "result.json").write_text('{"status": "done"}')
    assert carried(plan, out)[1] == []
    assert "cannot be used" not in build_report(out).path.read_text(encoding="utf-8")


@pytest.mark.extended
def test_only_an_edited_cell_is_repeated_and_undoing_the_edit_finds_the_old_runs(designed, carried, study):
    out, plan, _ = study
    edited = designed([{"task": "copy", "width": 16, "learning_rate": 0.001}], **FACTORS)
    done = carried(edited, out)[1]
    assert len(done) == 2
    assert all("task=copy-width=16" in name for name in done)
    rates = {tuple(values.values()): part.learning_rate for part, values in edited.cell_plans()}
    assert rates == {("copy", 8): 0.004, ("copy", 16): 0.001, ("recall", 8): 0.004, ("recall", 16): 0.004}
    assert carried(plan, out)[1] == []


@pytest.mark.extended
def test_a_factor_may_get_more_values_and_a_grid_more_seeds(designed, carried, study):
    out, _, _ = study
    more = designed(**FACTORS | {"width": (4, 8, 16)})
    done = carried(more, out)[1]
    assert len(done) == 4
    assert all("width=4" in name for name in done)


@pytest.mark.extended
def test_a_study_without_a_grid_may_get_more_seeds_and_schemes(designed, carried, tmp_path):
    options = {"task": ("copy",), "width": (8,), "eval_length_multiples": (1,)}
    carried(designed(schemes=("none",), **options), tmp_path)
    done = carried(designed(schemes=("rope", "none"), seeds=2, **options), tmp_path)[1]
    assert sorted(done) == ["none-s1", "rope-s0", "rope-s1"]
    with pytest.raises(OtherStudyError, match="width: 8 -> 16"):
        carried(designed(schemes=("none",), **options | {"width": (16,)}), tmp_path)
    with pytest.raises(OtherStudyError, match="grid: no grid -> 2 cells"):
        carried(designed(schemes=("none",), **options | {"width": (8, 16)}), tmp_path)


def test_each_cell_has_the_preset_of_its_task():
    cells = expand(
        PlanRequest(task=("text", "copy"), task_samples=(7,), eval_samples=(9,)), partial(preset, "standard")
    )
    text, copy = (plan for _, plan in cells)
    assert (text.steps, text.seeds, text.batch) == (3000, 2, 32)
    assert (copy.steps, copy.seeds, copy.batch) == (3000, 3, 64)
    # an option without effect in a cell has its default there
    assert (text.task_samples, text.eval_samples, copy.task_samples, copy.eval_samples) == (512, 9, 7, 64)


@pytest.mark.parametrize(
    ("options", "exceptions", "message"),
    [
        ({"width": (8, 8)}, (), "the values of a factor must differ; got --width 8 8"),
        (
            {"task": ("copy", "text"), "eval_samples": (3, 4)},
            (),
            "a factor must have an effect in every cell; --eval-samples has none on task copy",
        ),
        ({"width": (8, 16)}, ({"width": 9, "steps": 2},), r"got \[\[cells\]\] for width 9; name one of: width 8"),
        ({"width": (8, 16)}, ({"steps": 2},), "for no factor"),
        ({"width": (8, 16)}, ({"width": 8, "stps": 2},), "did you mean 'steps'"),
    ],
)
def test_invalid_grids_are_rejected(options, exceptions, message):
    with pytest.raises(ValueError, match=message):
        expand(PlanRequest(**options), QUICK, exceptions)


def test_cells_are_read_from_a_file_of_options(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text("width = [8, 16]\n[[cells]]\nwidth = 8\nsteps = 2\n")
    assert read_overrides(file) == [{"width": 8, "steps": 2}]
    assert read_overrides(None) == []
    file.write_text(f"{OVERRIDES_KEY} = 3\n")
    with pytest.raises(ValueError, match="exceptions for grid cells must be TOML tables"):
        read_overrides(file)


def test_the_plan_on_the_documentation_page_gives_the_cells_described():
    page = (Path(__file__).parents[2] / "docs" / "grids.md").read_text(encoding="utf-8")
    options = tomllib.loads(page.split("```toml\n")[1].split("```")[0])
    exceptions = options.pop(OVERRIDES_KEY)
    several = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    cells = expand(PlanRequest(**several | {"steps": (options["steps"],)}), QUICK, exceptions)
    found = {tuple(values.values()): (plan.steps, plan.tune_lr[-1]) for values, plan in cells}
    assert found == {
        ("recall:pairs=4", 32): (300, 0.008),
        ("recall:pairs=4", 64): (600, 0.008),
        ("copy:count=8", 32): (300, 0.016),
        ("copy:count=8", 64): (600, 0.008),
    }


def test_a_plan_read_again_has_the_same_runs(carried, study):
    out, plan, _ = study
    carried(plan, out)
    read = StudyFolder(out).plan()
    assert read == Plan(**json.loads(json.dumps(plan.model_dump(mode="json"))))
    assert [run.name for run in read.runs()] == [run.name for run in plan.runs()]


def test_the_report_of_a_grid_shows_every_cell(carried, study):
    out, plan, _ = study
    carried(plan, out)
    page = build_report(out).path.read_text(encoding="utf-8")
    for part in (
        "task copy, width 8",
        "task recall, width 16",
        "Means over cells",
        "width 16 (2 cells)",
        "all cells",
        "<dt>name</dt><dd>copy</dd>",
        "<dt>name</dt><dd>recall</dd>",
        "<dt>8 runs</dt>",
    ):
        assert part in page
    rows = (out / "results.csv").read_text().splitlines()
    assert rows[0].startswith("task,width,scheme,status,seeds,accuracy_1x")
    assert len(rows) == 1 + 8
    table = {(row["task"], row["width"], row["scheme"]): row for row in csv.DictReader(rows)}
    for run in plan.runs():
        own, row = (
            read_checksummed(StudyFolder(out).result(run)),
            table[run.cell["task"], str(run.cell["width"]), run.label],
        )
        assert int(row["parameters_trained"]) == own["parameters"]["trained"]
        answers = own["lengths"][0]
        assert float(row["accuracy_1x"]) == pytest.approx(sum(answers["right"]) / sum(answers["asked"]), abs=1e-5)
    whole = build_cell(out, {"task": "copy", "width": "16"})
    assert "Training loss" in whole.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="the cells are: task copy, width 8; task copy, width 16"):
        build_cell(out, {"task": "copy", "width": "17"})


@pytest.mark.extended
def test_the_texts_of_cells_have_separate_data_folders(designed, carried, tmp_path):
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(12):
            (tmp_path / name / f"{number}.txt").write_text(f"line {number} of {name} short text\n" * 30)
        texts.append(str(tmp_path / name))
    small = {
        "length": (16,),
        "width": (8,),
        "eval_samples": (2,),
        "shuffle_samples": (2,),
        "generated_texts": (0,),
        "eval_length_multiples": (1,),
    }
    plan = designed(text=tuple(texts), schemes=("none",), **{**small, "task_samples": (512,)})
    folder, _ = carried(plan, tmp_path / "study")
    about = folder.read()
    assert [cell["text"]["name"] for cell in about["cells"]] == texts
    losses = [read_checksummed(folder.result(run))["lengths"][0]["nats_per_token"] for run in plan.runs()]
    assert losses[0] != losses[1]
    # a changed text is rejected
    (tmp_path / "two" / "0.txt").write_text("something else\n" * 40)
    with pytest.raises((OtherStudyError, ValueError), match=r"other|holds"):
        carried(plan, tmp_path / "study")
