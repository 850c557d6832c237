"""The training loop as Lightning runs it."""

import hashlib
import logging
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as lightning
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from ordinate.batch import Batch
from ordinate.seeds import seed_of
from ordinate.task import Task
from ordinate.training.answers import answer
from ordinate.training.checkpoint import PlainCheckpoints, checkpoints, newest_whole, remove_partial, step_of
from ordinate.training.metrics import Metrics
from ordinate.training.optimiser import learning_rate_at, make_optimiser
from ordinate.training.settings import Diverged, Settings, Stopped, Watch

# settings that may differ when training goes on: they change no weight
FREE = ("checkpoint_every", "keep")


class Clock:
    """How fast training goes; the first step since it was started is left out, as it pays for starting."""

    def __init__(self) -> None:
        self.tokens, self.began, self.last = 0, 0.0, 0.0

    def count(self, tokens: int) -> None:
        """A step is done."""
        self.last = time.perf_counter()
        if not self.began:
            self.began = self.last
        else:
            self.tokens += tokens

    @property
    def speed(self) -> float | None:
        """Tokens a second; None before the second step."""
        return self.tokens / (self.last - self.began) if self.tokens else None


class Batches(IterableDataset[Batch]):
    """The batches of the steps still to do, each a function of the seed and the step."""

    def __init__(self, task: Task, settings: Settings, start: int) -> None:
        self.task, self.settings, self.start = task, settings, start

    def __iter__(self) -> Iterator[Batch]:
        """From the first step still to do to the last."""
        for step in range(self.start, self.settings.steps):
            generator = torch.Generator().manual_seed(seed_of(self.settings.seed, "batch", step))
            yield self.task.sample(generator, self.settings.batch)


class Learner(lightning.LightningModule):
    """A model, what it learns, and what is written down as it learns."""

    def __init__(
        self, model: nn.Module, task: Task, settings: Settings, folder: Path, metrics: Metrics, watch: Watch | None
    ) -> None:
        super().__init__()
        self.model = model
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
        _listen(self)

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
        torch.manual_seed(seed_of(settings.seed, "dropout", step))
        rate = learning_rate_at(step, highest=settings.learning_rate, warmup=settings.warmup, steps=settings.steps)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """The loss [nats a token]."""
        logits = answer(self.model, batch)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten())
        self.loss = loss.item()
        if not loss.isfinite():
            raise Diverged(self.global_step + 1, "loss")
        return loss

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Scale a long gradient down."""
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        if not norm.isfinite():
            raise Diverged(self.global_step + 1, "gradient")

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Write the loss down, and a checkpoint now and then."""
        step = self.global_step
        self.metrics.append(step, self.loss)
        self.clock.count(batch.targets.numel())
        if self.watch:
            self.watch(step, self.loss)
        if step % self.settings.checkpoint_every == 0 or step == self.settings.steps or self.signal:
            self._save(step)
        if self.signal:
            raise Stopped(self.signal)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Note of what settings and model the checkpoint is."""
        checkpoint["identity"] = self.identity

    def _save(self, step: int) -> None:
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            raise Diverged(step, "largest weight")
        self.metrics.sync()
        self.trainer.save_checkpoint(self.folder / f"step-{step:08d}")
        present = checkpoints(self.folder)
        # later ones are damaged: training would have gone on from them
        later = [path for path in present if step_of(path) > step]
        for old in [*later, *present[: len(present) - len(later)][: -self.settings.keep]]:
            self.trainer.strategy.remove_checkpoint(old)


def fit(
    model: nn.Module, task: Task, settings: Settings, folder: Path, metrics: Metrics, watch: Watch | None
) -> Clock:
    """Do the steps that are still to do, going on from the newest whole checkpoint."""
    remove_partial(folder)
    newest = newest_whole(folder)
    learner = Learner(model, task, settings, folder, metrics, watch)
    # lightning trains a model in the mode it comes in, without dropout where it last generated text
    learner.train()
    metrics.truncate(_check(newest, learner.identity))
    with _quiet(), _signals(learner):
        trainer = lightning.Trainer(
            max_steps=settings.steps,
            precision="bf16-mixed" if settings.precision == "bf16" else "32-true",
            # nothing of a cluster's: its requeueing has checkpoints of its own
            plugins=[PlainCheckpoints(), LightningEnvironment()],
            default_root_dir=folder,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        try:
            trainer.fit(learner, ckpt_path=newest)
        except SystemExit as error:
            # lightning turns a keyboard interrupt into an exit
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
    if learner.signal:
        raise Stopped(learner.signal)
    return learner.clock


def identity(model: nn.Module, task: Task, settings: Settings) -> dict[str, Any]:
    """What must be the same when training goes on: settings, data and parameters."""
    kept = {name: value for name, value in asdict(settings).items() if name not in FREE}
    batch = next(iter(Batches(task, settings, 0)))
    drawn = hashlib.sha256(b"".join(part.cpu().numpy().tobytes() for part in batch.tensors.values())).hexdigest()
    shapes = {f"shape of {name}": list(parameter.shape) for name, parameter in model.named_parameters()}
    types = {f"type of {name}": str(parameter.dtype) for name, parameter in model.named_parameters()}
    return {**kept, "sha256 of the first batch": drawn, **shapes, **types}


def _check(newest: Path | None, new: dict[str, Any]) -> int:
    """Raise unless the checkpoint is of this model, data and settings; how many steps it has done."""
    if newest is None:
        return 0
    checkpoint = PlainCheckpoints().load_checkpoint(newest)
    old = checkpoint["identity"]
    lines = [f"{k}: {old.get(k)!r} -> {new.get(k)!r}" for k in {**old, **new} if old.get(k) != new.get(k)]
    if lines:
        listed = "\n  ".join(lines)
        raise ValueError(
            f"a run goes on with the settings, data and model it began with; {newest} was begun with "
            f"others:\n  {listed}\ngive the same, or another folder"
        )
    return int(checkpoint["global_step"])


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
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _signals(learner: Learner) -> Iterator[None]:
    """SIGTERM and SIGINT go to the learner; afterwards to whoever had them."""
    before = _listen(learner)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(learner: Learner) -> dict[int, Any]:
    """Send signals to the learner, where a thread may; who had each before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, learner.stop) for number in (signal.SIGTERM, signal.SIGINT)}
