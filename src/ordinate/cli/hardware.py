"""`--devices`, `--nodes` and `--strategy`: what the runs of a command are trained on."""

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from ordinate.checks import need
from ordinate.study.engine import PATIENCE, Engine
from ordinate.study.folder import Folder
from ordinate.study.mirror import Mirror
from ordinate.study.plan import Plan
from ordinate.training.settings import Hardware

HARDWARE = Parameter(name="*")
ONE_DEVICE = Hardware()


@dataclass(frozen=True)
class Carrying:
    """How many runs are carried out at a time, and where.

    Args:
        workers: runs at a time; by default as many as there are cores for, with as many threads each as short trials
            show to be fastest.
        patience: a run that says nothing for so many minutes is ended, and counts as killed.
        ray: carry the runs out on a Ray cluster: its address, or `auto` for the one at hand or one of this machine
            alone. `--out` is then a folder that all of its machines share, or a URL.

    Raises:
        ValueError: workers on a cluster.
    """

    workers: int | None = None
    patience: float = PATIENCE / 60
    ray: str | None = None

    def __post_init__(self) -> None:
        need(
            self.ray is None or self.workers is None,
            "a cluster decides how many runs are done at a time",
            f"got --workers {self.workers} with --ray {self.ray}",
            "leave it out",
        )

    @property
    def seconds(self) -> float:
        """The patience in seconds."""
        return 60 * self.patience


USUAL = Carrying()


def engine_of(
    plan: Plan, hardware: Hardware, carrying: Carrying = USUAL, mirror: Mirror | None = None
) -> Engine | None:
    """Where runs on several devices are carried out; None for one device.

    Raises:
        ValueError: what was asked for cannot be served, or would have no effect.
    """
    if hardware.world == 1:
        return None
    from ordinate.study.capacity import check_machine, check_plan

    check_plan(plan, hardware)
    workers, patience = carrying.workers, carrying.seconds
    if carrying.ray is not None:
        alone = hardware.nodes == 1
        need(alone, "Ray places a run on one machine", f"got --ray with --nodes {hardware.nodes}", "leave one out")
        need(
            workers is None,
            "a cluster decides how many runs are done at a time",
            f"got --workers {workers}",
            "drop it",
        )
        from ordinate.study.engines.cluster import Cluster

        return Cluster(carrying.ray, patience, mirror, hardware)
    check_machine(hardware, plan.threads or 1, 1 if workers is None else workers)
    if hardware.nodes == 1:
        from ordinate.study.engines.devices import Devices

        return Devices(hardware, workers, patience)
    need(workers in (None, 1), "machines together do one run at a time", f"got --workers {workers}", "leave it out")
    need(
        mirror is None, "machines share the folder of a study", "got a URL with --nodes", "give such a folder: --out"
    )
    from ordinate.study.engines.nodes import Nodes

    return Nodes(hardware, patience)


def dismiss(engine: Engine | None) -> None:
    """Tell other machines, where there are some, that all is over."""
    if getattr(engine, "node", None) is None:
        return
    from ordinate.study.engines.nodes import Nodes

    if isinstance(engine, Nodes):
        engine.dismiss()


def follows(engine: Engine | None, out: Path) -> bool:
    """Take part in what another machine conducts, if this is not the one that does: whether it was so."""
    if engine is None or getattr(engine, "node", 0) == 0:
        return False
    from ordinate.study.engines.nodes import Nodes

    if isinstance(engine, Nodes):
        engine.follow(Folder(out))
    return True
