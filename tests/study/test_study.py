"""Small studies end to end, from text to results, with and without interruptions."""

import os
import signal
import subprocess

import pytest

from ordinate.core.atomic_files import read_checksummed
from ordinate.core.progress import ignore
from ordinate.report.build import build_report
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker_process import WorkerPool


class Recorder:
    """Records progress events."""

    def __init__(self):
        self.told = []

    def __call__(self, progress):
        self.told.append(progress)

    @property
    def todo(self):
        """Number of runs to do when the plan was final."""
        (planned,) = [one for one in self.told if one.stage == "planned"]
        assert planned.message.endswith(f"; {planned.total - planned.done} to do")
        return planned.total - planned.done


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(20):
        lines = (f"the {word} of line {number * word} is {word * 7 % 13}\n" for word in range(40))
        (folder / f"{number}.txt").write_text("".join(lines))
    return folder


def small(text, /, **changes):
    sizes = {"length": 16, "steps": 6, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup_steps": 2}
    measures = {
        "eval_samples": 4,
        "shuffle_samples": 4,
        "generated_texts": 1,
        "generated_tokens": 8,
        "checkpoint_every": 2,
    }
    return resolve(Plan(**({"text": str(text), "schemes": ("rope", "learned")} | sizes | measures | changes)))


def results(folder, plan, costs=False):
    found = {run.name: read_checksummed(folder.result(run)) for run in plan.runs()}
    if not costs:
        for result in found.values():
            result.pop("cost", None)
    return found


@pytest.fixture(scope="module")
def calm(text, tmp_path_factory):
    plan, watch = small(text), Recorder()
    folder = run_study(plan, tmp_path_factory.mktemp("calm") / "study", LocalExecutor(2), "ordinate study", watch)
    return plan, folder, watch


def test_every_run_is_done_and_evaluated(calm):
    plan, folder, watch = calm
    found = results(folder, plan, costs=True)
    assert watch.todo == 2
    assert {one.stage for one in watch.told} == {"reading", "planned", "training", "measuring", "done"}
    for result in found.values():
        assert result["status"] == "done"
        assert result["training"]["steps"] == list(range(1, 7))
        assert [row["times"] for row in result["lengths"]] == [1, 2, 4, 8]
        assert [row["window"] for row in result["order"]] == [1, 2, 4, 8, 16]
        assert result["positions"]["trained_length"] == 16
        assert len(result["samples"][0]["text"]) > 0
        assert result["cost"]["peak_memory_bytes"] > 1 << 26
        row = result["lengths"][0]
        assert row["interval"][0] < row["bits_per_byte"] < row["interval"][1]
        # the same bytes are predicted whatever the length of the context
        assert len({sum(d["bytes"] for d in other["documents"]) for other in result["lengths"]}) == 1


def test_the_models_can_be_read_again(calm):
    from ordinate.models.decoder import Decoder

    plan, folder, _ = calm
    for run in plan.runs():
        model = Decoder.from_pretrained(str(folder.run(run) / "model"), local_files_only=True)
        assert model.shape.scheme == run.label
        assert (folder.run(run) / "model" / "tokenizer.json").exists()


def test_repeating_a_finished_study_does_nothing(calm):
    plan, folder, _ = calm
    before, watch = results(folder, plan, costs=True), Recorder()
    run_study(plan, folder.path, LocalExecutor(1), "ordinate study", watch)
    assert watch.todo == 0
    assert results(folder, plan, costs=True) == before


def processes(*which):
    return subprocess.run(["pgrep", *which], capture_output=True, text=True).stdout.split()


@pytest.mark.extended
def test_killed_midway_the_same_command_gives_the_same_results(calm, text, tmp_path):
    plan, undisturbed, _ = calm
    kills = []

    class Killer(Recorder):
        def __call__(self, progress):
            super().__call__(progress)
            if progress.done == 3 and progress.item == "rope-s0" and not kills:
                kills.append(progress)
                # workers are children of the fork server, or of this process without one
                (server,) = processes("-P", str(os.getpid()), "-f", "study.(fork_server|worker)")
                for worker in processes("-P", server) or [server]:
                    os.kill(int(worker), signal.SIGKILL)

    first = run_study(plan, tmp_path / "study", LocalExecutor(1), "ordinate study", Killer())
    assert first.status(plan.runs()[0]) == "killed"
    watch = Recorder()
    folder = run_study(plan, tmp_path / "study", LocalExecutor(1), "ordinate study", watch)
    assert watch.todo == 1
    # resumed from a checkpoint
    assert all(update.done >= 3 for update in watch.told if update.loss is not None)
    assert results(folder, plan) == results(undisturbed, plan)


# imported by Python itself (sitecustomize): slows each step so that a signal arrives before the last
SLOW = """
import builtins, time
say = builtins.print

def print_(*values, **options):
    say(*values, **options)
    if values and str(values[0]).startswith('{"step"'):
        time.sleep(1)

builtins.print = print_
"""


@pytest.mark.extended
def test_interrupted_it_saves_stops_and_resumes(calm, tmp_path, monkeypatch):
    plan, undisturbed, _ = calm
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"))

    class Interrupter(Recorder):
        def __call__(self, progress):
            super().__call__(progress)
            if progress.done == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run_study(plan, tmp_path / "study", LocalExecutor(1), "ordinate study", Interrupter())
    folder = StudyFolder(tmp_path / "study")
    assert [folder.status(run) for run in plan.runs()] == ["pending", "pending"]
    assert list((folder.run(plan.runs()[0]) / "checkpoints").glob("step-*"))
    monkeypatch.delenv("PYTHONPATH")
    run_study(plan, tmp_path / "study", LocalExecutor(2), "ordinate study", ignore)
    assert results(folder, plan) == results(undisturbed, plan)


@pytest.mark.extended
def test_a_run_that_diverges_records_the_step_and_the_others_continue(text, tmp_path):
    plan = small(text, learning_rate=1e30, grad_clip=1e30, warmup_steps=0, schemes=("none", "rope"))
    watch = Recorder()
    folder = run_study(plan, tmp_path / "study", LocalExecutor(2), "ordinate study", watch)
    for result in results(folder, plan).values():
        assert result["status"] == "diverged"
        assert 1 < result["step"] <= 6
        assert f"step {result['step']} is not a finite number" in result["message"]


@pytest.mark.extended
def test_a_run_that_fails_keeps_its_messages_and_is_tried_again(calm, text, tmp_path):
    plan, undisturbed, _ = calm
    out = tmp_path / "study"
    blocker = out / "runs" / "rope-s0" / "model"
    folder = StudyFolder(out)

    def block(progress):
        if progress.stage == "planned":
            blocker.parent.mkdir(parents=True)
            blocker.write_text("in the way")

    run_study(plan, out, LocalExecutor(2), "ordinate study", block)
    failed = read_checksummed(folder.result(plan.runs()[0]))
    assert failed["status"] == "failed"
    assert "model" in failed["message"]
    assert folder.status(plan.runs()[1]) == "done"
    blocker.unlink()
    run_study(plan, out, LocalExecutor(1), "ordinate study", ignore)
    assert results(folder, plan) == results(undisturbed, plan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"length": 4096, "schemes": ("none",)},
            "the training text must have at least 4097 tokens|some held-out document must have",
        ),
        ({"schemes": ("rope", "rope")}, "schemes and mixers must differ from each other"),
        ({"tokenizer": "bite"}, "did you mean 'bytes'"),
        ({"text": "stdlip"}, "did you mean 'stdlib'"),
    ],
)
def test_bad_input_is_reported_before_anything_is_trained(text, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run_study(small(text, **changes), tmp_path / "study", LocalExecutor(1), "x", ignore)
    assert not (tmp_path / "study" / "runs").exists()


@pytest.mark.extended
def test_a_length_that_no_document_has_is_reported_not_dropped(text, tmp_path):
    plan = small(text, schemes=("none",), length=256, steps=2)
    folder = run_study(plan, tmp_path / "study", LocalExecutor(1), "x", ignore)
    rows = results(folder, plan)["none-s0"]["lengths"]
    assert rows[0]["nats_per_token"] is not None
    assert rows[-1]["nats_per_token"] is None
    assert "no held-out document has 2049 tokens" in rows[-1]["reason"]


def test_a_stopped_pool_starts_nothing():
    crew = WorkerPool()
    crew.stop()
    assert crew.start(["true"]) is None


@pytest.mark.extended
def test_a_study_of_mixers_on_a_task_reports_accuracy(tmp_path):
    sizes = {"steps": 3, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup_steps": 1, "task_samples": 20}
    plan = resolve(Plan(task="copy:count=4", mixers=("softmax",), eval_length_multiples=(1, 2), **sizes))
    folder = run_study(plan, tmp_path / "study", LocalExecutor(1), "ordinate study --mixers softmax", ignore)
    result = results(folder, plan, costs=True)["softmax-s0"]
    assert result["status"] == "done"
    assert (result["run"]["mixer"], result["run"]["scheme"]) == ("softmax", "rope")
    assert [(row["times"], row["asked"]) for row in result["lengths"]] == [(1, [4] * 20), (2, [8] * 20)]
    assert not (folder.run(plan.runs()[0]) / "model" / "tokenizer.json").exists()
    assert not folder.data.exists()
    page = build_report(folder.path).path.read_text(encoding="utf-8")
    assert "Mixers: 1 compared on copy:count=4" in page
    assert "Accuracy by place" in page
    watch = Recorder()
    run_study(plan, folder.path, LocalExecutor(1), "again", watch)
    assert watch.todo == 0
