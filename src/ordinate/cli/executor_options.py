"""`--workers`, `--ray`, `--devices` and related options: choose the executor of a command's runs."""

from dataclasses import dataclass

from cyclopts import Parameter

from ordinate.core.checks import need
from ordinate.study.executor import STALL_TIMEOUT, Executor
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.plan import Plan
from ordinate.study.remote_sync import RemoteCopy
from ordinate.training.settings import Hardware


@dataclass(frozen=True)
class ExecutorOptions:
    """How the runs of a command are carried out.

    Args:
        workers: Number of parallel runs; by default as many as there are cores for, with the number of threads that
            short measurements show to be fastest.
        stall_timeout_minutes: Stall timeout in minutes: a run without output for this long is killed.
        ray: Carry the runs out on a Ray cluster: its address, or `auto` for a running one or one on this machine
            alone. `--out` is then a folder that all its machines share, or a URL.
    """

    workers: int | None = None
    stall_timeout_minutes: float = STALL_TIMEOUT / 60
    ray: str | None = None


FLAT = Parameter(name="*")
ONE_DEVICE, DEFAULT_EXECUTION = Hardware(), ExecutorOptions()


def make_executor(
    plan: Plan,
    hardware: Hardware,
    work: ExecutorOptions,
    mirror: RemoteCopy | None = None,
) -> Executor:
    """Return the executor for the given options.

    Args:
        plan: the resolved plan.
        hardware: devices of each run.
        work: number of parallel runs, and where.
        mirror: remote copy of the study at a URL; None for none.

    Raises:
        ValueError: options that contradict each other, do not fit this machine, or would have no effect.
    """
    if hardware.world_size > 1:
        from ordinate.study.device_allocation import check_plan

        check_plan(plan, hardware)
    workers, stall_timeout = work.workers, 60 * work.stall_timeout_minutes
    if work.ray is not None:
        alone = hardware.nodes == 1
        need(alone, "Ray places a run on one machine", f"got --ray with --nodes {hardware.nodes}", "leave one out")
        came = f"got --workers {workers} with --ray {work.ray}"
        need(workers is None, "a cluster determines the number of parallel runs", came, "leave --workers out")
        from ordinate.study.executors.cluster import RayExecutor

        return RayExecutor(work.ray, stall_timeout, mirror, hardware)
    if hardware.world_size == 1:
        return LocalExecutor(workers, stall_timeout)
    from ordinate.study.device_allocation import check_machine

    check_machine(hardware, plan.threads or 1, 1 if workers is None else workers)
    if hardware.nodes == 1:
        from ordinate.study.executors.devices import MultiDeviceExecutor

        return MultiDeviceExecutor(hardware, workers, stall_timeout)
    need(workers in (None, 1), "several machines do one run at a time", f"got --workers {workers}", "leave it out")
    need(
        mirror is None,
        "several machines must share a folder",
        "got a URL for --out",
        "give a folder that all of them can access",
    )
    from ordinate.study.executors.nodes import MultiNodeExecutor

    return MultiNodeExecutor(hardware, stall_timeout)
