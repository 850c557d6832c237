"""The training loop on PyTorch Lightning: module, signals, checkpoints, devices."""

import logging
import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as lightning
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import Strategy
from torch import nn
from torch.utils.data import DataLoader

from ordinate.core.progress import OnProgress, Progress
from ordinate.core.seeds import derive_seed
from ordinate.data.batch import Batch
from ordinate.data.task import Task
from ordinate.evaluation.prediction import batch_logits, has_target
from ordinate.training.batches import AheadStream, BatchStream, ThroughputMeter, completed_steps, training_identity
from ordinate.training.checkpoint import (
    checkpoint_path,
    latest_valid_checkpoint,
    list_checkpoints,
    remove_partial,
    step_of,
)
from ordinate.training.checkpoint_plugin import SafetensorsCheckpointIO
from ordinate.training.ddp import ReplicatedStrategy
from ordinate.training.fsdp import ShardedStrategy, gather_into, global_norm, local_shard, shard_model
from ordinate.training.metrics import Metrics
from ordinate.training.optimiser import learning_rate_at, make_optimiser
from ordinate.training.process_group import COLLECTIVE_TIMEOUT, ProcessGroup, distributed_session
from ordinate.training.settings import Hardware, TrainingDiverged, TrainingSettings, TrainingStopped


class TrainingModule(lightning.LightningModule):
    """LightningModule of a training run: model, task, metrics log and checkpoints."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        settings: TrainingSettings,
        folder: Path,
        metrics: Metrics,
        on_progress: OnProgress,
        group: ProcessGroup,
    ) -> None:
        super().__init__()
        self.model, self.group = model, group
        self.identity = training_identity(model, task, settings)
        self.task, self.settings, self.folder, self.metrics = task, settings, folder, metrics
        self.on_progress = on_progress
        self.clock = ThroughputMeter()
        self.signal = 0

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: stop after the current step; a second SIGINT stops immediately, which is safe as well."""
        if self.signal == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    def on_train_start(self) -> None:
        """Reinstall the signal handlers, and save the initial weights if they are kept.

        Lightning's own handlers would end the process without a checkpoint.
        """
        _install(self.stop)
        if self.global_step == 0 and 0 in self.settings.keep_steps:
            self._save(0)

    def configure_model(self) -> None:
        """Shard the model if the strategy is FSDP."""
        if isinstance(self.trainer.strategy, ShardedStrategy) and self.device_mesh is not None:
            self.model = shard_model(self.model, self.device_mesh["data_parallel"])

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return the remaining batches; for a GPU they are drawn ahead."""
        batches = BatchStream(self.task, self.settings, self.global_step)
        return DataLoader(AheadStream(batches) if torch.cuda.is_available() else batches, batch_size=None)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch.to(device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimiser(self.model, self.settings.learning_rate, self.settings.weight_decay)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed dropout and set the learning rate of this step."""
        settings, step = self.settings, self.global_step
        # each rank has its own dropout masks; rank 0 has those of a single device
        torch.manual_seed(derive_seed(settings.seed, "dropout", step, *[self.group.rank] * (not self.group.is_main)))
        rate = learning_rate_at(
            step, peak=settings.learning_rate, warmup_steps=settings.warmup_steps, steps=settings.steps
        )
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Return the loss [nats per token], scaled for gradient averaging over ranks."""
        own = self.group.local_part(batch)
        logits = batch_logits(self.model, own)
        nats = nn.functional.cross_entropy(logits.float().flatten(0, -2), own.targets.flatten(), reduction="sum")
        # mean over all targets of the global batch: ranks with more targets weigh more
        loss = nats / has_target(batch).sum()
        self.loss = self.group.all_gather(loss.item()).sum().item()
        if not math.isfinite(self.loss):
            raise TrainingDiverged(self.global_step + 1, "loss")
        # DDP and FSDP average gradients over ranks; multiplying by the world size makes that a sum
        return loss * self.group.world_size

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Clip the gradient norm; raise TrainingDiverged if it is not finite."""
        if not global_norm(nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.grad_clip)).isfinite():
            raise TrainingDiverged(self.global_step + 1, "gradient")

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Log the loss, and save a checkpoint when one is due or a signal arrived."""
        step = self.global_step
        self.clock.update(batch.targets.numel())
        if self.group.is_main:
            self.metrics.append(step, self.loss)
            self.on_progress(Progress(stage="training", done=step, total=self.settings.steps, loss=self.loss))
        signal = self.agreed_signal()
        due = step % self.settings.checkpoint_every == 0 or step in (*self.settings.keep_steps, self.settings.steps)
        if due or signal:
            self._save(step)
        if signal:
            raise TrainingStopped(signal)

    def agreed_signal(self) -> int:
        """Return the stop signal received by any process, the same on all ranks; 0: none."""
        return int(self.group.all_gather(self.signal).max())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the identity of settings, data and model to the checkpoint."""
        checkpoint["identity"] = self.identity

    def _save(self, step: int) -> None:
        sound = all(local_shard(parameter).isfinite().all() for parameter in self.model.parameters())
        if not self.group.all_gather(sound).all():
            raise TrainingDiverged(step, "largest weight")
        if self.group.is_main:
            self.metrics.sync()
        self.trainer.save_checkpoint(checkpoint_path(self.folder, step))
        present = list_checkpoints(self.folder)
        # later checkpoints must be corrupt, or training would have resumed from them
        later = [path for path in present if step_of(path) > step]
        earlier = present[: len(present) - len(later)][: -self.settings.keep]
        for old in [*later, *(path for path in earlier if step_of(path) not in self.settings.keep_steps)]:
            self.trainer.strategy.remove_checkpoint(old)


def fit(
    model: nn.Module,
    task: Task,
    settings: TrainingSettings,
    folder: Path,
    metrics: Metrics,
    on_progress: OnProgress,
    hardware: Hardware,
) -> ThroughputMeter:
    """Run the remaining steps, resuming from the newest valid checkpoint."""
    with distributed_session(hardware) as group:
        module = TrainingModule(model, task, settings, folder, metrics, on_progress, group)
        newest = _prepare(module)
        # Lightning keeps the mode of the model, which is eval after text generation
        module.train()
        with _quiet(), _handling(module.stop):
            trainer = _trainer(settings, hardware, folder)
            try:
                trainer.fit(module, ckpt_path=newest)
            except SystemExit as error:
                # Lightning turns a KeyboardInterrupt into SystemExit
                if isinstance(error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                raise
        if asked_to_stop := module.agreed_signal():
            raise TrainingStopped(asked_to_stop)
        if module.model is not model:
            gather_into(model, module.model)
        return module.clock


def _prepare(module: TrainingModule) -> Path | None:
    """Clean up the folder; return the checkpoint that all ranks resume from, None for a new run."""
    group, folder = module.group, module.folder
    step = -1
    if group.is_main:
        remove_partial(folder)
        newest = latest_valid_checkpoint(folder)
        module.metrics.truncate(completed_steps(newest, module.identity))
        step = -1 if newest is None else step_of(newest)
    agreed = int(group.all_gather(step)[0])
    return None if agreed < 0 else checkpoint_path(folder, agreed)


def _trainer(settings: TrainingSettings, hardware: Hardware, folder: Path) -> lightning.Trainer:
    return lightning.Trainer(
        max_steps=settings.steps,
        precision="bf16-mixed" if settings.precision == "bf16" else "32-true",
        # no SLURM environment: its auto-requeue would write checkpoints of its own
        plugins=[SafetensorsCheckpointIO(), LightningEnvironment()],
        default_root_dir=folder,
        devices=hardware.devices,
        num_nodes=hardware.nodes,
        strategy=_strategy(hardware),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _strategy(hardware: Hardware) -> Strategy | str:
    if hardware.world_size == 1:
        return "auto"
    return (
        ShardedStrategy(hardware.world_size, COLLECTIVE_TIMEOUT)
        if hardware.is_sharded
        else ReplicatedStrategy(COLLECTIVE_TIMEOUT)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's tips and hints."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            warnings.filterwarnings("ignore", module="lightning_fabric")
            # harmless: no parameter view is modified in place
            warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _handling(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGTERM and SIGINT by `stop`, and restore the previous handlers on exit."""
    before = _install(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _install(stop: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Install a handler of SIGTERM and SIGINT and return the previous ones; possible in the main thread only."""
    allowed = threading.current_thread() is threading.main_thread()
    return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT) if allowed}
