"""`--workers`, `--ray`, `--devices` and their like: where the runs of a command are carried out, and on what."""

from collections.abc import Callable
from dataclasses import dataclass

from cyclopts import Parameter

from ordinate.checks import need
from ordinate.study.engine import PATIENCE, Engine
from ordinate.study.engines.local import Local
from ordinate.study.mirror import Mirror
from ordinate.study.plan import Plan
from ordinate.training.settings import Hardware


@dataclass(frozen=True)
class Work:
    """How the runs of a command are carried out.

    Args:
        workers: Runs at a time; by default as many as there are cores for, with as many threads each as short trials
            show to be fastest.
        patience: A run that says nothing for so many minutes is ended, and counts as killed.
        ray: Carry the runs out on a Ray cluster: its address, or `auto` for the one at hand or one of this machine
            alone. `--out` is then a folder that all of its machines share, or a URL.
    """

    workers: int | None = None
    patience: float = PATIENCE / 60
    ray: str | None = None


FLAT = Parameter(name="*")
ONE_DEVICE, USUAL = Hardware(), Work()


def engine_of(
    plan: Plan, hardware: Hardware, work: Work, tell: Callable[[str], None], mirror: Mirror | None = None
) -> Engine:
    """Where runs are carried out.

    Args:
        plan: what is to be done.
        hardware: what each run is trained on.
        work: how many at a time, and where.
        tell: is given what a person may want to know.
        mirror: the study's copy at a URL; None: there is none.

    Raises:
        ValueError: what was asked for cannot be served, or would have no effect.
    """
    if hardware.world > 1:
        from ordinate.study.capacity import check_plan

        check_plan(plan, hardware)
    workers, patience = work.workers, 60 * work.patience
    if work.ray is not None:
        alone = hardware.nodes == 1
        need(alone, "Ray places a run on one machine", f"got --ray with --nodes {hardware.nodes}", "leave one out")
        need(
            workers is None,
            "a cluster decides how many runs are done at a time",
            f"got --workers {workers} with --ray {work.ray}",
            "leave it out",
        )
        from ordinate.study.engines.cluster import Cluster

        return Cluster(work.ray, patience, mirror, hardware)
    if hardware.world == 1:
        return Local(workers, patience, tell)
    from ordinate.study.capacity import check_machine

    check_machine(hardware, plan.threads or 1, 1 if workers is None else workers)
    if hardware.nodes == 1:
        from ordinate.study.engines.devices import Devices

        return Devices(hardware, workers, patience)
    need(workers in (None, 1), "machines together do one run at a time", f"got --workers {workers}", "leave it out")
    need(
        mirror is None,
        "machines together share a folder",
        "got a URL for --out",
        "give a folder that all of them see",
    )
    from ordinate.study.engines.nodes import Nodes

    return Nodes(hardware, patience)
