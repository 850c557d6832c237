import threading

import pytest
import torch

from ordinate.data.tasks.copy import Copy
from ordinate.study import resources
from ordinate.training.batches import AheadStream, BatchStream
from ordinate.training.settings import TrainingSettings

SETTINGS = TrainingSettings(steps=5, batch=3, seed=1)


def test_batches_drawn_ahead_are_the_same_in_the_same_order():
    plain = list(BatchStream(Copy(count=4), SETTINGS, 1))
    ahead = list(AheadStream(BatchStream(Copy(count=4), SETTINGS, 1), pinned=False))
    assert len(plain) == len(ahead) == 4
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(plain, ahead, strict=True))


def test_one_batch_is_drawn_ahead_and_none_after_the_end():
    drawn = []

    class Watched(Copy):
        def sample(self, generator, count):
            drawn.append(threading.current_thread())
            return super().sample(generator, count)

    stream = iter(AheadStream(BatchStream(Watched(count=4), SETTINGS, 0), pinned=False))
    next(stream)
    stream.close()
    assert len(drawn) == 2
    assert threading.main_thread() not in drawn


def test_an_error_is_raised_where_its_batch_is_due():
    class Broken(Copy):
        def sample(self, generator, count):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        next(iter(AheadStream(BatchStream(Broken(count=4), SETTINGS, 0), pinned=False)))


def test_memory_is_that_of_the_allocator_of_a_gpu(monkeypatch):
    assert resources.peak_memory() > 2**20
    for name, value in (("is_available", True), ("is_initialized", True), ("max_memory_allocated", 123)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    assert resources.peak_memory() == 123
