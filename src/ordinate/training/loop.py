"""Train a model with exact resumption: interrupting a run does not change its result."""

from pathlib import Path

from torch import nn

from ordinate.core.progress import OnProgress, ignore
from ordinate.data.task import Task
from ordinate.training.checkpoint import need_space
from ordinate.training.metrics import Metrics
from ordinate.training.settings import Hardware, TrainingHistory, TrainingSettings

ONE_DEVICE = Hardware()


def train(
    model: nn.Module,
    task: Task,
    settings: TrainingSettings,
    folder: Path,
    on_progress: OnProgress = ignore,
    hardware: Hardware = ONE_DEVICE,
) -> TrainingHistory:
    """Train `model` on `task`, resuming from the newest valid checkpoint in `folder`.

    Batches and dropout masks are functions of seed and step, so an interrupted run ends with bit-identical weights.

    Args:
        model: returns the logits of each position; put in training mode, holds the final weights afterwards.
        task: the training data.
        settings: hyperparameters.
        folder: output folder of checkpoints and metrics.jsonl.
        on_progress: receives, after each step, the steps done and the loss.
        hardware: the devices. With several, one process per device calls this function with the same arguments, and
            rank 0 writes the files. A run can resume on another number of devices; on the same number the result is
            bit-identical.

    Raises:
        TrainingDiverged: the loss, the gradient or a weight is not finite; all checkpoints are from before that.
        TrainingStopped: a SIGTERM or SIGINT arrived; a checkpoint was saved.
        KeyboardInterrupt: a second SIGINT arrived before the step finished; older checkpoints are valid.
        ValueError: the checkpoints belong to another model, other data or other settings (each difference is named),
            or the losses of earlier steps are missing; the batch is not divisible by the devices, or there is not one
            process per device.
        OSError: a checkpoint or a loss cannot be written, or there is no space for the checkpoints to keep.
    """
    from ordinate.training.lightning import fit

    hardware.check_batch_size(settings.batch)
    folder.mkdir(parents=True, exist_ok=True)
    need_space(folder, sum(parameter.numel() for parameter in model.parameters()), settings.keep_steps)
    metrics = Metrics(folder / "metrics.jsonl")
    clock = fit(model, task, settings, folder, metrics, on_progress, hardware)
    rows = metrics.read()
    return TrainingHistory(tuple(step for step, _ in rows), tuple(loss for _, loss in rows), clock.tokens_per_second)
