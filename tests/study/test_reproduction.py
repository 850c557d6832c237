"""A run of a study is trained again and compared; what differs is told."""

import json
from pathlib import Path

import pytest

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.progress import ignore
from ordinate.report.reproduction import compare
from ordinate.study import manifest, reproduction, worker
from ordinate.study.reproduction import sample_run, train_again
from ordinate.study.result_file import read_result
from ordinate.study.study_folder import OtherStudyError, StudyFolder
from ordinate.training.settings import Hardware

STUDIES = Path(__file__).parents[2] / "studies"
PLAN = {"task": ("copy:count=4",), "schemes": ("none", "rope"), "width": (16,), "eval_length_multiples": (1,)}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Carry out runs in this process."""

    def carry_out(folder, plan, run, on_progress, pool, stall_timeout):
        worker.train_and_evaluate(folder, plan, run, Hardware())

    monkeypatch.setattr(reproduction, "run_in_subprocess", carry_out)
    monkeypatch.setattr(worker, "print_update", lambda **update: None)


@pytest.fixture(scope="module")
def study(designed, carried, tmp_path_factory):
    return carried(designed(**PLAN), tmp_path_factory.mktemp("studies") / "study")[0]


def reproduced(study, out, name=None, steps=None):
    run, stored = sample_run(study, name, 0)
    made = train_again(study, run, stored, out, ignore, steps)
    now = made.result.get("provenance") or manifest.run_provenance()
    return compare(study.read(), study.plan().for_run(run).model_dump(mode="json"), stored, made.result, now, steps)


def test_equal_conditions_give_equal_bits(study, tmp_path):
    before = {path: path.read_bytes() for path in study.path.rglob("*.json")}
    found = reproduced(study, tmp_path / "again")
    assert found.outcome == "bit"
    assert "reproduced to the bit: all 3 losses, the final weights and" in found.answer
    assert found.details == []
    assert {path: path.read_bytes() for path in study.path.rglob("*.json")} == before
    # trained again each time: a changed file of the first attempt has no effect
    again = StudyFolder(tmp_path / "again")
    (name,) = [path.parent.name for path in again.path.glob("runs/*/result.json")]
    write_checksummed(again.result(name), read_result(again.result(name)) | {"weights_sha256": "00"})
    assert reproduced(study, again.path, name).outcome == "bit"


def test_the_first_steps_are_a_quick_check(study, tmp_path):
    found = reproduced(study, tmp_path / "again", steps=2)
    assert (found.outcome, found.answer) == ("bit", "reproduced to the bit: the losses of the first 2 steps")
    assert found.details == ["not compared: weights and evaluation, as only the first steps were trained"]
    with pytest.raises(ValueError, match="--steps must be at least 1, and below the 3 of the run; got 3"):
        reproduced(study, tmp_path / "again", steps=3)


def change(study, path, name, **changes):
    """A copy of a study in which a result was changed, and sealed again."""
    copy = StudyFolder(path)
    copy.run(name).mkdir(parents=True)
    for file in (study.study, study.threads_file):
        (path / file.name).write_bytes(file.read_bytes())
    write_checksummed(copy.result(name), {**read_result(study.result(name)), **changes})
    return copy


@pytest.mark.extended
@pytest.mark.parametrize("section", ["training", "weights_sha256", "lengths"])
def test_one_other_bit_is_not_reproduced_where_nothing_else_differs(study, tmp_path, section):
    stored = read_result(study.result("rope-s0"))[section]
    if section == "training":
        stored["loss"][-1] += 1e-15
    elif section == "lengths":
        stored[0]["right"][0] += 1
    else:
        stored = "0" * 64
    found = reproduced(
        change(study, tmp_path / "study", "rope-s0", **{section: stored}), tmp_path / "again", "rope-s0"
    )
    assert found.outcome == "different"
    assert f"not equal to the bit, though nothing differs that is known; first in {section}" in found.answer


def test_what_differs_is_told_and_decides_the_tolerance(study, tmp_path):
    stored = read_result(study.result("rope-s0"))
    made = {**stored["provenance"], "code": "0" * 64, "instructions": "NEON"}
    losses = {"steps": [1, 2, 3], "loss": [loss + 1e-6 for loss in stored["training"]["loss"]]}
    other = change(study, tmp_path / "study", "rope-s0", provenance=made, training=losses)
    found = reproduced(other, tmp_path / "again", "rope-s0")
    assert (found.outcome, found.answer) == (
        "close",
        "reproduced within 1e-06 nats a step on average (tolerance 0.00011); code differs",
    )
    code = manifest.code_digest()[:12]
    assert found.details[0].startswith(f"what differs: code: 000000000000 -> {code}; instructions: NEON -> ")
    losses["loss"][2] += 0.1
    other = change(study, tmp_path / "other", "rope-s0", provenance=made, training=losses)
    found = reproduced(other, tmp_path / "again", "rope-s0")
    assert found.outcome == "different"
    assert found.answer.startswith("not reproduced: losses differ by 0.033 nats a step on average")


def test_another_state_is_not_reproduced(study, tmp_path):
    other = change(study, tmp_path / "study", "rope-s0", status="diverged", step=2)
    found = reproduced(other, tmp_path / "again", "rope-s0")
    assert (found.outcome, found.answer) == (
        "different",
        "not reproduced: the run is diverged in the study, done here",
    )


@pytest.mark.extended
def test_a_tuned_run_of_a_grid_takes_the_rate_of_its_study(designed, carried, tmp_path):
    plan = designed(**PLAN | {"width": (8, 16), "schemes": ("rope",)}, tune_lr=(0.001, 0.002))
    study, _ = carried(plan, tmp_path / "study")
    (run, *_) = [run for run in plan.runs() if run.rate is None and run.cell == {"width": 16}]
    found = reproduced(study, tmp_path / "again", run.name)
    assert found.outcome == "bit", found
    tried = sorted(path.parent.name for path in (tmp_path / "again").glob("runs/*/result.json"))
    assert len(tried) == 3


def test_a_run_that_diverges_does_so_again(study, tmp_path):
    other = change(study, tmp_path / "study", "rope-s0", status="diverged", step=2)
    _, stored = sample_run(other, None, 0)
    again = {"status": "diverged", "step": 2, "parameters": stored["parameters"]}
    stored = {name: part for name, part in stored.items() if name in ("status", "step", "parameters", "provenance")}
    found = compare(other.read(), dict(other.plan()), stored, again, stored["provenance"])
    assert (found.outcome, found.answer) == ("bit", "reproduced to the bit: it diverges at step 2, as in the study")
    found = compare(other.read(), dict(other.plan()), stored, again | {"step": 3}, stored["provenance"])
    assert found.outcome == "different"
    with pytest.raises(ValueError, match=r"a run must be done to be compared; rope-s0 is diverged; .* another run"):
        sample_run(other, "rope-s0", 0, ("done",))


def test_a_training_that_was_stopped_is_resumed(study, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "run_in_subprocess", lambda *_: None)
    with pytest.raises(
        ValueError, match=r"must not be stopped; .*none-s0 has no result; repeat the command to resume"
    ):
        reproduced(study, tmp_path / "again", "none-s0")


def test_a_run_is_sampled_by_seed_and_needs_a_result(study, tmp_path):
    assert {sample_run(study, None, seed)[0].name for seed in range(20)} == {"none-s0", "rope-s0"}
    assert sample_run(study, None, 3)[0] == sample_run(study, None, 3)[0]
    other = change(study, tmp_path / "study", "rope-s0")
    assert {sample_run(other, None, seed)[0].name for seed in range(20)} == {"rope-s0"}
    with pytest.raises(ValueError, match="did you mean 'rope-s0'"):
        sample_run(other, "ropes0", 0)
    with pytest.raises(ValueError, match="must have a result to compare with; none-s0 has none; give another"):
        sample_run(other, "none-s0", 0)
    other.result("rope-s0").write_text("{")
    with pytest.raises(ValueError, match=r"must be done or diverged to be compared; .* has none; finish the study"):
        sample_run(other, None, 0)
    with pytest.raises(ValueError, match="must start with the checksum"):
        sample_run(other, "rope-s0", 0)


def test_the_data_must_be_those_of_the_study(designed, carried, tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    for number in range(30):
        (text / f"{number}.txt").write_text(f"some words of text {number} " * 20)
    sizes = {
        "text": (str(text),),
        "length": (8,),
        "eval_samples": (2,),
        "shuffle_samples": (2,),
        "generated_texts": (0,),
        "task_samples": (512,),
    }
    study, _ = carried(
        designed(schemes=("none",), width=(16,), eval_length_multiples=(1,), **sizes), tmp_path / "study"
    )
    (text / "0.txt").write_text("other words")
    # the study still has its data
    assert reproduced(study, tmp_path / "again").outcome == "bit"
    data = study.data / "manifest.json"
    data.write_text(data.read_text() + " ")
    with pytest.raises(
        ValueError, match=r"(?s)trained again on the data .*\n  text.sha256: '\w+' -> '\w+'.*restore the text"
    ):
        reproduced(study, tmp_path / "third")


def test_a_folder_of_something_else_is_refused(study, tmp_path):
    (tmp_path / "letter.txt").write_text("precious")
    with pytest.raises(OtherStudyError, match="holds other files"):
        reproduced(study, tmp_path)


def test_no_run_of_a_study_is_removed(study, designed, carried, tmp_path):
    copy, _ = carried(designed(**PLAN), tmp_path / "copy")
    before = {path: path.read_bytes() for path in copy.path.rglob("*") if path.is_file()}
    for out in (copy.path, study.path):
        with pytest.raises(ValueError, match=r"needs a folder of its own; .* holds a study; give another --out"):
            reproduced(study, out, "rope-s0", 2)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.extended
def test_what_other_code_began_is_begun_anew(study, tmp_path):
    assert reproduced(study, tmp_path, "rope-s0", 2).outcome == "bit"
    again = StudyFolder(tmp_path)
    write_checksummed(again.study, again.read() | {"code": "0" * 64})
    (again.run("rope-s0") / "checkpoints" / "metrics.jsonl").write_text("of other code")
    assert reproduced(study, tmp_path, "rope-s0").outcome == "bit"
    assert again.read()["code"] == manifest.code_digest()


def committed(study, run):
    (path,) = STUDIES.glob(f"{study}/runs/{run}/result.json")
    return read_checksummed(path)


@pytest.mark.extended
@pytest.mark.parametrize("steps", [10, 25, 50, 100, None])
def test_the_tolerance_lies_between_rounding_and_another_seed(steps):
    """A cell of studies/baselines and studies/ten have seed 0 of eight schemes in common, trained by other code."""
    about = json.loads((STUDIES / "ten" / "study.json").read_text())
    now = manifest.run_provenance()
    for label in ("none", "sinusoidal", "learned", "rope", "alibi", "t5", "concatenated", "scalar"):
        stored, rounded = committed("ten", f"{label}-s0"), committed("baselines", f"{label}-embedding_scale=1.0-*-s0")
        for seed, again, outcome in ((0, rounded, "close"), (1, None, "different"), (2, None, "different")):
            again = again or committed("ten", f"{label}-s{seed}")
            if steps is not None:
                again = {"status": "done", "training": {name: row[:steps] for name, row in again["training"].items()}}
            found = compare(about, about["plan"], stored, again, now, steps)
            assert found.outcome == outcome, (label, seed, found)
            assert "reproduced" in found.answer


@pytest.mark.extended
def test_a_study_resumed_by_other_code_does_not_say_what_made_an_old_result(study):
    stored = {name: part for name, part in read_result(study.result("rope-s0")).items() if name != "provenance"}
    about, now = study.read() | {"resumed_by": [{}]}, manifest.run_provenance()
    found = compare(about, about["plan"], stored, stored | {"weights_sha256": "1"}, now)
    assert "not known of the stored run: code, ordinate" in found.details[0]
    assert found.outcome == "close"
    del stored["weights_sha256"]
    found = compare(study.read(), about["plan"], stored, stored | {"weights_sha256": "1"}, {**now, "threads": 1})
    assert found.details[-1] == "not compared, as the stored result has none: weights"
