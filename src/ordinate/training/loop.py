"""Train a model so that being killed at any instant changes nothing of the outcome."""

from pathlib import Path

from torch import nn

from ordinate.task import Task
from ordinate.training.metrics import Metrics
from ordinate.training.settings import Hardware, Settings, Trace, Watch

ONE_DEVICE = Hardware()


def train(
    model: nn.Module,
    task: Task,
    settings: Settings,
    folder: Path,
    watch: Watch | None = None,
    hardware: Hardware = ONE_DEVICE,
) -> Trace:
    """Train `model` on `task`, going on from the newest whole checkpoint in `folder`.

    Batches and dropout are functions of the seed and the step, so a run that was killed ends with the same weights,
    bit for bit, as one that was not.

    Args:
        model: gives the logits of each place; is put in training mode, and has the final weights afterwards.
        task: what to learn.
        settings: how.
        folder: for checkpoints and metrics.jsonl.
        watch: is told each step and its loss.
        hardware: the devices; with several, every process of a training calls this with the same, one for each, and
            the first writes the files. Any number of devices goes on from the checkpoints of any other; on as many,
            to the bit.

    Raises:
        Diverged: the loss, the gradient or a weight stopped being finite; every checkpoint is from before that.
        Stopped: a SIGTERM or SIGINT came; a checkpoint was saved.
        KeyboardInterrupt: a second SIGINT came before the step was done; older checkpoints are whole.
        ValueError: the checkpoints are of another model, other data or other settings (each difference is named),
            or the losses of earlier steps are missing; a batch that cannot be shared out evenly, or not a process
            for each device.
        OSError: a checkpoint or a loss cannot be written.
    """
    from ordinate.training.lightning import fit

    hardware.check(settings.batch)
    folder.mkdir(parents=True, exist_ok=True)
    metrics = Metrics(folder / "metrics.jsonl")
    clock = fit(model, task, settings, folder, metrics, watch, hardware)
    rows = metrics.read()
    return Trace(tuple(step for step, _ in rows), tuple(loss for _, loss in rows), clock.speed)
