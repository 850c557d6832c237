"""A study on a Ray cluster of two nodes, one of which is lost meanwhile."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ordinate.core.atomic_files import read_checksummed
from ordinate.core.progress import ignore
from ordinate.report.build import build_report
from ordinate.study.executors import cluster
from ordinate.study.executors.cluster import RayExecutor
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.manifest import code_digest
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.run import FINAL_STATES
from ordinate.study.runner import run_study

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    text = tmp_path_factory.mktemp("text")
    for number in range(20):
        (text / f"{number}.txt").write_text("".join(f"line {number * word} is {word % 13}\n" for word in range(60)))
    sizes = {"length": 16, "steps": 120, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup_steps": 2}
    measures = {
        "eval_samples": 4,
        "shuffle_samples": 4,
        "generated_texts": 0,
        "checkpoint_every": 5,
        "eval_length_multiples": (1,),
    }
    return resolve(Plan(text=str(text), schemes=("rope", "none"), **sizes, **measures))


@pytest.fixture(scope="module")
def local(plan, tmp_path_factory):
    folder = run_study(plan, tmp_path_factory.mktemp("local") / "study", LocalExecutor(2), "ordinate study", ignore)
    build_report(folder.path)
    return folder


@pytest.fixture
def nodes(monkeypatch):
    """A cluster of two machines with one core each; the first is the head node only."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    # tests may not use the network, and the head listens at this machine's own address
    monkeypatch.setattr(cluster, "_need_answer", lambda address: None)
    import ray
    from ray.cluster_utils import Cluster as Machines

    machines = Machines(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20},
    )
    machines.workers = [machines.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2)]
    yield machines
    ray.shutdown()
    machines.shutdown()


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_results_of_one_machine_though_a_node_is_lost(plan, local, nodes, tmp_path, monkeypatch):
    # such a small run ends within a second
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.02)
    lost = []

    def lose_node(progress):
        if progress.item and (progress.done or 0) >= 10 and not lost:
            lost.append(progress)
            nodes.remove_node(nodes.workers[0])

    folder = run_study(plan, tmp_path / "study", RayExecutor(nodes.address, 300.0), "ordinate study", lose_node)
    assert lost
    assert {folder.status(run) for run in plan.runs()} == {"done"}
    build_report(folder.path)
    tables = [(place.path / "results.csv").read_bytes() for place in (folder, local)]
    assert tables[0] == tables[1]
    for run in plan.runs():
        one, other = (read_checksummed(place.result(run)) for place in (folder, local))
        assert {**one, "cost": 0} == {**other, "cost": 0}
    told = []
    run_study(plan, folder.path, RayExecutor(nodes.address), "ordinate study", told.append)
    assert [one.stage for one in told] == ["reading", "planned"]


def test_an_unreachable_address_is_rejected(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"must name a reachable cluster; 127\.0\.0\.1:1 does not answer"):
        run_study(plan, tmp_path / "study", RayExecutor("127.0.0.1:1"), "ordinate study", ignore)
    assert time.monotonic() - began < 60
    assert not any(folder.name in FINAL_STATES for folder in tmp_path.iterdir())


def test_a_machine_with_different_code_carries_out_no_run(plan, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(cluster, "_attempt", lambda *run: told.append(run))
    cluster._work(code_digest(), None, tmp_path, "rope-s0", 1.0, cluster.ONE_DEVICE)
    assert told == [(tmp_path, "rope-s0", 1.0, cluster.ONE_DEVICE)]
    with pytest.raises(
        ValueError, match=r"the same Ordinate code as the one that gave the command.*has different code; install"
    ):
        cluster._work("0", None, tmp_path, "rope-s0", 1.0, cluster.ONE_DEVICE)
    assert len(told) == 1


def test_a_cluster_that_cannot_start_is_reported(plan, tmp_path, monkeypatch):
    import ray

    def init(address=None, **_):
        raise ConnectionError("none") if address else Exception("The current node timed out\nduring startup.")

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ValueError, match=r"did not start \(The current node timed out\); repeat the command"):
        run_study(plan, tmp_path / "study", RayExecutor(), "ordinate study", ignore)


def test_a_cluster_started_here_is_for_this_machine_alone(monkeypatch):
    import ray

    given = []

    def init(address=None, **options):
        if address:
            raise ConnectionError("none")
        given.append((ray._private.ray_constants.ENABLE_RAY_CLUSTER, options))

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(ray, "init", init)
    where = SimpleNamespace(gcs_address="192.0.2.1:6379")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: where)
    message = r"loopback interface only; this version of Ray listens on 192\.0\.2\.1:6379"
    with pytest.raises(ValueError, match=message), cluster.ray_session("auto"):
        pass
    where.gcs_address = "127.0.0.1:6379"
    with cluster.ray_session("auto"):
        pass
    for clusters, options in given:
        assert not clusters
        assert (options["include_dashboard"], options["_node_ip_address"]) == (False, "127.0.0.1")
        assert options["job_config"]._client_job
    assert ray._private.ray_constants.ENABLE_RAY_CLUSTER or sys.platform != "linux"


def test_a_cluster_started_here_has_a_token_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        # set first, so that what is set meanwhile is taken back too
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    cluster._authenticate("192.0.2.1:6379")
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    monkeypatch.delenv("RAY_AUTH_MODE")
    cluster._authenticate("auto")
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


LISTENING = """
from ordinate.study.executors.cluster import ray_session
with ray_session("auto") as ray:
    import os, psutil, subprocess, sys
    mine, found = psutil.Process(), []
    path = ray.get(ray.remote(lambda: __import__("sys").path).remote())
    assert os.getcwd() not in path, path
    for process in (mine, *mine.children(recursive=True)):
        found += [one.laddr.ip for one in process.net_connections("inet") if one.status == "LISTEN"]
    print(sorted(set(found)))
    code = f"import ray; ray.init({ray.get_runtime_context().gcs_address!r}); print('joined')"
    other = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    try:
        done = subprocess.run([sys.executable, "-c", code], env=other, capture_output=True, text=True, timeout=30)
        print(done.stdout)
    except subprocess.TimeoutExpired:
        print("refused")
"""


@pytest.mark.extended
def test_a_cluster_started_here_listens_on_loopback_only_and_admits_no_stranger(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # -P: otherwise the test itself would have the current folder on the path
    command = [sys.executable, "-P", "-c", LISTENING]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    addresses, *rest = done.stdout.splitlines()
    assert addresses == "['127.0.0.1', '::ffff:127.0.0.1']"
    assert "joined" not in rest


@pytest.mark.extended
def test_ray_usage_statistics_are_disabled(plan, local, tmp_path):
    run_study(plan, local.path, RayExecutor(), "ordinate study", ignore)
    assert os.environ.get("RAY_USAGE_STATS_ENABLED", "0") == "0"
