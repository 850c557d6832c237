"""`--devices`, `--nodes` and `--strategy`: what the runs of a command are trained on."""

from pathlib import Path

from cyclopts import Parameter

from ordinate.checks import need
from ordinate.study.engine import PATIENCE, Engine
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.training.settings import Hardware

HARDWARE = Parameter(name="*")
ONE_DEVICE = Hardware()


def engine_of(
    plan: Plan, hardware: Hardware, workers: int | None = None, patience: float = PATIENCE, ray: str | None = None
) -> Engine | None:
    """Where runs on several devices are carried out; None for one device.

    Raises:
        ValueError: what was asked for cannot be served, or would have no effect.
    """
    if hardware.world == 1:
        return None
    from ordinate.study.capacity import check_machine, check_plan

    check_plan(plan, hardware)
    if ray is not None:
        alone = hardware.nodes == 1
        need(alone, "Ray places a run on one machine", f"got --ray with --nodes {hardware.nodes}", "leave one out")
        need(
            workers is None,
            "a cluster decides how many runs are done at a time",
            f"got --workers {workers}",
            "drop it",
        )
        from ordinate.study.engines.cluster import Cluster

        return Cluster(ray, patience, hardware)
    check_machine(hardware, plan.threads or 1, 1 if workers is None else workers)
    if hardware.nodes == 1:
        from ordinate.study.engines.devices import Devices

        return Devices(hardware, workers, patience)
    need(workers in (None, 1), "machines together do one run at a time", f"got --workers {workers}", "leave it out")
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
