"""The training loop as Lightning runs it."""

import logging
import math
import signal
import warnings
from collections.abc import Iterator
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

from ordinate.batch import Batch
from ordinate.seeds import seed_of
from ordinate.task import Task
from ordinate.training.answers import answer, asked
from ordinate.training.batches import Batches, Clock, identity, steps_done
from ordinate.training.checkpoint import (
    PlainCheckpoints,
    checkpoint_at,
    checkpoints,
    newest_whole,
    remove_partial,
    step_of,
)
from ordinate.training.metrics import Metrics
from ordinate.training.optimiser import learning_rate_at, make_optimiser
from ordinate.training.replicated import Replicated
from ordinate.training.settings import Diverged, Hardware, Settings, Stopped, Watch
from ordinate.training.sharded import Sharded, assemble, local, norm_of, shard
from ordinate.training.signals import listen, listening
from ordinate.training.team import PATIENCE, Team, meeting


class Learner(lightning.LightningModule):
    """A model, what it learns, and what is written down as it learns."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        settings: Settings,
        folder: Path,
        metrics: Metrics,
        watch: Watch | None,
        team: Team,
    ) -> None:
        super().__init__()
        self.model, self.team = model, team
        self.identity = identity(model, task, settings)
        self.task, self.settings, self.folder, self.metrics, self.watch = task, settings, folder, metrics, watch
        self.clock = Clock()
        self.signal = 0

    def stop(self, number: int, frame: FrameType | None) -> None:
        """A signal asks to stop after the step; a second SIGINT at once, which is safe too."""
        if self.signal == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    def on_train_start(self) -> None:
        """Take signals back from Lightning, which would end the process without a checkpoint."""
        listen(self.stop)

    def configure_model(self) -> None:
        """Share the model out, where each device is to keep a part of it only."""
        if isinstance(self.trainer.strategy, Sharded) and self.device_mesh is not None:
            self.model = shard(self.model, self.device_mesh["data_parallel"])

    def train_dataloader(self) -> DataLoader[Batch]:
        """The batches still to do."""
        return DataLoader(Batches(self.task, self.settings, self.global_step), batch_size=None)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """The batch where the model is."""
        return batch.to(device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return make_optimiser(self.model, self.settings.learning_rate, self.settings.weight_decay)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Random numbers and learning rate of this step."""
        settings, step = self.settings, self.global_step
        # sequences of other devices drop other numbers
        torch.manual_seed(seed_of(settings.seed, "dropout", step, *[self.team.rank] * (not self.team.leads)))
        rate = learning_rate_at(step, highest=settings.learning_rate, warmup=settings.warmup, steps=settings.steps)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """The loss [nats a token]."""
        own = self.team.share(batch)
        logits = answer(self.model, own)
        nats = nn.functional.cross_entropy(logits.float().flatten(0, -2), own.targets.flatten(), reduction="sum")
        # the mean over what is asked in the whole batch: shares in which more is asked weigh more
        loss = nats / asked(batch).sum()
        self.loss = self.team.gather(loss.item()).sum().item()
        if not math.isfinite(self.loss):
            raise Diverged(self.global_step + 1, "loss")
        # gradients of devices are averaged
        return loss * self.team.world

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Scale a long gradient down."""
        if not norm_of(nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)).isfinite():
            raise Diverged(self.global_step + 1, "gradient")

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Write the loss down, and a checkpoint now and then."""
        step = self.global_step
        self.clock.count(batch.targets.numel())
        if self.team.leads:
            self.metrics.append(step, self.loss)
            if self.watch:
                self.watch(step, self.loss)
        signal = self.agreed()
        if step % self.settings.checkpoint_every == 0 or step == self.settings.steps or signal:
            self._save(step)
        if signal:
            raise Stopped(signal)

    def agreed(self) -> int:
        """The signal that asks all processes to stop, whichever of them got it; 0: none."""
        return int(self.team.gather(self.signal).max())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Note of what settings and model the checkpoint is."""
        checkpoint["identity"] = self.identity

    def _save(self, step: int) -> None:
        sound = all(local(parameter).isfinite().all() for parameter in self.model.parameters())
        if not self.team.gather(sound).all():
            raise Diverged(step, "largest weight")
        if self.team.leads:
            self.metrics.sync()
        self.trainer.save_checkpoint(checkpoint_at(self.folder, step))
        present = checkpoints(self.folder)
        # later ones are damaged: training would have gone on from them
        later = [path for path in present if step_of(path) > step]
        for old in [*later, *present[: len(present) - len(later)][: -self.settings.keep]]:
            self.trainer.strategy.remove_checkpoint(old)


def fit(
    model: nn.Module,
    task: Task,
    settings: Settings,
    folder: Path,
    metrics: Metrics,
    watch: Watch | None,
    hardware: Hardware,
) -> Clock:
    """Do the steps that are still to do, going on from the newest whole checkpoint."""
    with meeting(hardware) as team:
        learner = Learner(model, task, settings, folder, metrics, watch, team)
        newest = _prepare(learner)
        # lightning trains a model in the mode it comes in, without dropout where it last generated text
        learner.train()
        with _quiet(), listening(learner.stop):
            trainer = _trainer(settings, hardware, folder)
            try:
                trainer.fit(learner, ckpt_path=newest)
            except SystemExit as error:
                # lightning turns a keyboard interrupt into an exit
                if isinstance(error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                raise
        if asked_to_stop := learner.agreed():
            raise Stopped(asked_to_stop)
        if learner.model is not model:
            assemble(model, learner.model)
        return learner.clock


def _prepare(learner: Learner) -> Path | None:
    """Tidy the folder up: the checkpoint that all processes go on from, None at the beginning."""
    team, folder = learner.team, learner.folder
    step = -1
    if team.leads:
        remove_partial(folder)
        newest = newest_whole(folder)
        learner.metrics.truncate(steps_done(newest, learner.identity))
        step = -1 if newest is None else step_of(newest)
    agreed = int(team.gather(step)[0])
    return None if agreed < 0 else checkpoint_at(folder, agreed)


def _trainer(settings: Settings, hardware: Hardware, folder: Path) -> lightning.Trainer:
    return lightning.Trainer(
        max_steps=settings.steps,
        precision="bf16-mixed" if settings.precision == "bf16" else "32-true",
        # nothing of a cluster's: its requeueing has checkpoints of its own
        plugins=[PlainCheckpoints(), LightningEnvironment()],
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
    if hardware.world == 1:
        return "auto"
    return Sharded(hardware.world, PATIENCE) if hardware.shards else Replicated(PATIENCE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning without its advertisements and hints."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            warnings.filterwarnings("ignore", module="lightning_fabric")
            # nothing of ours is changed in place
            warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
