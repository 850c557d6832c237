"""The same study on a Ray cluster of two nodes, one of which is lost on the way."""

import os
import time

import pytest

from ordinate.files import read_sealed
from ordinate.report.build import build
from ordinate.study.about import code_digest
from ordinate.study.conduct import conduct
from ordinate.study.engines import cluster
from ordinate.study.engines.cluster import Cluster
from ordinate.study.engines.local import Local
from ordinate.study.plan import Plan
from ordinate.study.settle import settle
from ordinate.study.state import FINAL

pytest.importorskip("ray")


class Quiet:
    def reading(self, name):
        pass

    def planned(self, plan, todo):
        self.todo = todo

    def news(self, news):
        pass


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    text = tmp_path_factory.mktemp("text")
    for number in range(20):
        (text / f"{number}.txt").write_text("".join(f"line {number * word} is {word % 13}\n" for word in range(60)))
    sizes = {"length": 16, "steps": 120, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup": 2}
    measures = {"windows": 4, "shuffled": 4, "samples": 0, "checkpoint_every": 5, "multiples": (1,)}
    return settle(Plan(text=str(text), schemes=("rope", "none"), **sizes, **measures))


@pytest.fixture(scope="module")
def local(plan, tmp_path_factory):
    folder = conduct(plan, tmp_path_factory.mktemp("local") / "study", Local(2), "ordinate study", Quiet())
    build(folder.path)
    return folder


@pytest.fixture
def nodes(monkeypatch):
    """Two machines of one core each; the first only leads."""
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


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_results_of_one_machine_though_a_node_is_lost(plan, local, nodes, tmp_path, monkeypatch):
    # so small a run is over in a second
    monkeypatch.setattr(cluster, "EVERY", 0.02)
    lost = []

    class Saboteur(Quiet):
        def news(self, news):
            if news.step >= 10 and not lost:
                lost.append(news)
                nodes.remove_node(nodes.workers[0])

    folder = conduct(plan, tmp_path / "study", Cluster(nodes.address, 300.0), "ordinate study", Saboteur())
    assert lost
    assert {folder.status(run) for run in plan.runs()} == {"done"}
    build(folder.path)
    tables = [(place.path / "results.csv").read_bytes() for place in (folder, local)]
    assert tables[0] == tables[1]
    for run in plan.runs():
        one, other = (read_sealed(place.result(run)) for place in (folder, local))
        assert {**one, "cost": 0} == {**other, "cost": 0}
    watch = Quiet()
    conduct(plan, folder.path, Cluster(nodes.address), "ordinate study", watch)
    assert watch.todo == 0


def test_an_address_that_does_not_answer_is_refused(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"names a cluster that answers; 127\.0\.0\.1:1 does not"):
        conduct(plan, tmp_path / "study", Cluster("127.0.0.1:1"), "ordinate study", Quiet())
    assert time.monotonic() - began < 60
    assert not any(folder.name in FINAL for folder in tmp_path.iterdir())


def test_a_machine_with_another_ordinate_does_no_run(plan, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(cluster, "_attempt", lambda *run: told.append(run))
    cluster._work(code_digest(), None, tmp_path, "rope-s0", 1.0, cluster.ONE_DEVICE)
    assert told == [(tmp_path, "rope-s0", 1.0, cluster.ONE_DEVICE)]
    with pytest.raises(ValueError, match=r"the Ordinate of the one that gives the command.*has another; install"):
        cluster._work("0", None, tmp_path, "rope-s0", 1.0, cluster.ONE_DEVICE)
    assert len(told) == 1


def test_a_machine_that_is_too_busy_for_a_cluster_is_told(plan, tmp_path, monkeypatch):
    import ray

    def init(address=None, **_):
        raise ConnectionError("none") if address else Exception("The current node timed out\nduring startup.")

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ValueError, match=r"did not begin \(The current node timed out\); run the same command again"):
        conduct(plan, tmp_path / "study", Cluster(), "ordinate study", Quiet())


def test_nothing_is_told_to_the_makers_of_ray(plan, local, tmp_path):
    conduct(plan, local.path, Cluster(), "ordinate study", Quiet())
    assert os.environ.get("RAY_USAGE_STATS_ENABLED", "0") == "0"
