"""A study at a URL: one machine resumes what another started, over an unreliable connection."""

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from ordinate.core.progress import Progress
from ordinate.study import remote_sync as module
from ordinate.study.plan import Plan
from ordinate.study.remote_sync import RemoteCopy, is_url, local_folder
from ordinate.study.study_folder import StudyFolder

PLAN = Plan(schemes=("rope", "none"), checkpoint_every=2)
ROPE, NONE = PLAN.runs()


class Shaky(MemoryFileSystem):
    """File system that fails repeatedly and sometimes leaves half a file."""

    protocol = "shaky"
    store, pseudo_dirs = {}, [""]
    failures, calls, torn = 0, 0, False

    def put_file(self, lpath, rpath, **options):
        Shaky.calls += 1
        if Shaky.failures:
            Shaky.failures -= 1
            if Shaky.torn:
                self.pipe_file(rpath, b"{")
            raise ConnectionResetError("the line is dead")
        super().put_file(lpath, rpath, **options)


@pytest.fixture(autouse=True)
def line(monkeypatch):
    monkeypatch.setattr(module, "FIRST_DELAY", 0.0)
    fsspec.register_implementation("shaky", Shaky, clobber=True)
    Shaky.store.clear()
    Shaky.failures, Shaky.calls, Shaky.torn = 0, 0, False
    yield
    MemoryFileSystem.store.clear()


def write(folder, step, run=ROPE, result=None):
    """Write the files of a run up to a step."""
    place = folder / "runs" / run.name
    for old in place.glob("checkpoints/step-*/*"):
        old.unlink()
    saved = place / "checkpoints" / f"step-{step:08d}"
    saved.mkdir(parents=True)
    for name in ("tensors.safetensors", "manifest.json"):
        (saved / name).write_text(f"{name} of {step}")
    (place / "checkpoints" / "metrics.jsonl").write_text("".join(f"{one}\n" for one in range(step)))
    if result:
        StudyFolder(folder).record_end(run, result, "")


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def study(folder):
    folder.mkdir()
    (folder / "study.json").write_text("{}")
    (folder / ".lock").write_text("")
    (folder / "data").mkdir()
    (folder / "data" / "train.npy").write_text("tokens")
    return folder


def test_urls_are_distinguished_from_folders():
    assert is_url("s3://bucket/study")
    assert not is_url("C:/study")
    assert not is_url("runs/study")
    assert local_folder("s3://bucket/study").name.startswith("study-")
    assert local_folder("s3://bucket/study") == local_folder("s3://bucket/study/") != local_folder("s3://other/study")


def test_an_unsupported_url_is_reported_with_what_to_install(tmp_path):
    with pytest.raises(ValueError, match=r"a URL that fsspec supports; got nowhere://x"):
        RemoteCopy("nowhere://x", tmp_path)


@pytest.mark.parametrize("kind", ["memory", "file", "shaky"])
def test_another_machine_downloads_everything(tmp_path, kind):
    url = f"{kind}://{tmp_path}/there" if kind == "file" else f"{kind}://bucket/study"
    one = study(tmp_path / "one")
    write(one, 4, result="done")
    write(one, 2, NONE)
    RemoteCopy(url, one).push()
    (tmp_path / "other").mkdir()
    RemoteCopy(url, tmp_path / "other").fetch()
    assert tree(tmp_path / "other") == {name: text for name, text in tree(one).items() if name != ".lock"}


def test_the_copy_with_more_progress_is_taken(tmp_path):
    one, other = study(tmp_path / "one"), study(tmp_path / "other")
    write(one, 4)
    write(one, 2, NONE)
    RemoteCopy("memory://study", one).push()
    write(other, 2)
    write(other, 6, NONE, result="done")
    mine = RemoteCopy("memory://study", other)
    mine.fetch()
    assert (other / "runs/rope-s0/checkpoints/step-00000004").is_dir()
    assert not (other / "runs/rope-s0/checkpoints/step-00000002").exists()
    assert StudyFolder(other).status(NONE) == "done"
    mine.push()
    assert {name for name in mine._listed() if "none-s0" in name} == {
        name for name in tree(other) if "none-s0" in name
    }


def test_only_what_changed_is_copied_and_what_is_gone_is_deleted(tmp_path):
    one = study(tmp_path / "one")
    write(one, 2)
    mine = RemoteCopy("shaky://study", one)
    mine.push()
    Shaky.calls = 0
    mine.push()
    assert Shaky.calls == 0
    (one / "runs/rope-s0/checkpoints/step-00000002").rename(one / "runs/rope-s0/checkpoints/step-00000004")
    mine.push("rope-s0")
    names = set(mine._listed())
    assert "runs/rope-s0/checkpoints/step-00000004/manifest.json" in names
    assert not any("step-00000002" in name for name in names)
    # a new mirror finds the remote state
    Shaky.calls = 0
    again = RemoteCopy("shaky://study", one)
    again.fetch()
    again.push()
    assert Shaky.calls == 0


def test_a_failing_connection_is_retried(tmp_path):
    one = study(tmp_path / "one")
    write(one, 4, result="done")
    Shaky.failures, Shaky.torn = module.MAX_ATTEMPTS - 1, True
    RemoteCopy("shaky://study", one).push()
    (tmp_path / "other").mkdir()
    RemoteCopy("shaky://study", tmp_path / "other").fetch()
    assert StudyFolder(tmp_path / "other").status(ROPE) == "done"


def test_a_dead_connection_gives_one_error_and_the_result_is_uploaded_last(tmp_path):
    one = study(tmp_path / "one")
    write(one, 4, result="done")
    files = len(tree(one)) - 1
    mine = RemoteCopy("shaky://study", one)
    put = mine.files.put_file

    def dies(lpath, rpath, **options):
        if Shaky.calls >= files - 1:
            raise ConnectionResetError("the line is dead")
        put(lpath, rpath, **options)

    mine.files.put_file = dies
    with pytest.raises(
        OSError, match=r"cannot write shaky://study/.*result.json .*the line is dead\), tried 5 times"
    ):
        mine.push()
    del mine.files.put_file
    names = set(mine._listed())
    assert len(names) == files - 1
    assert not any("result.json" in name for name in names)
    mine.push()
    assert any("result.json" in name for name in mine._listed())


def test_a_run_is_copied_after_each_checkpoint_and_at_its_end(tmp_path):
    copied = []
    mine = RemoteCopy("memory://study", study(tmp_path / "one"))
    mine.push = lambda run=None: copied.append(run)
    upload = mine.uploader(PLAN.checkpoint_every)
    upload(Progress(stage="reading", message="reading the text: x"))
    upload(Progress(message="threads per run: 2"))
    assert copied == []
    upload(Progress(stage="planned", done=0, total=2))
    assert copied == [None]
    upload(Progress("rope-s0", "training"))
    for step in range(6):
        upload(Progress("rope-s0", "training", step, loss=2.0))
    assert copied == [None, "rope-s0", "rope-s0"]
    for stage in ("measuring", "done", "killed", "waiting"):
        upload(Progress("rope-s0", stage))
    assert copied == [None, *["rope-s0"] * 6]


def test_a_machine_of_a_cluster_fetches_what_one_run_needs(tmp_path):
    one, other = study(tmp_path / "one"), tmp_path / "other"
    write(one, 4)
    write(one, 2, NONE)
    RemoteCopy("memory://study", one).push()
    mine = RemoteCopy("memory://study", other)
    mine.fetch("rope-s0")
    names = set(tree(other))
    assert {"study.json", "data/train.npy", "runs/rope-s0/checkpoints/metrics.jsonl"} <= names
    assert not any("none-s0" in name for name in names)
    write(one, 6)
    RemoteCopy("memory://study", one).push()
    mine.fetch("rope-s0")
    assert (other / "runs/rope-s0/checkpoints/step-00000006").is_dir()
