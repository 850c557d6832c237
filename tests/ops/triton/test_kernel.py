"""Launches, without a GPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from tests.ops.triton.interpreter import installed


@installed
@pytest.mark.parametrize("current", [0, 1])
def test_a_kernel_is_launched_on_the_device_of_its_tensors(current, monkeypatch):
    from ordinate.ops.triton.kernel import Matrix, launch, power_of_two

    devices, launches = [current], []

    @contextmanager
    def device(chosen):
        devices.append(chosen.index)
        yield
        devices.pop()

    class Kernel:
        def __getitem__(self, grid):
            return lambda *given, **options: launches.append((devices[-1], grid, options["num_warps"]))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: devices[-1])
    monkeypatch.setattr(torch.cuda, "device", device)
    q = SimpleNamespace(device=torch.device("cuda", 1))
    launch(Kernel(), (3,), ((Matrix(q, 0, 0, 0), None), 5), {"num_warps": 4})
    launch(Kernel(), (3,), (SimpleNamespace(device=torch.device("cpu")), 5), {"num_warps": 4})
    assert launches == [(1, (3,), 4), (current, (3,), 4)]
    assert devices == [current]
    assert [power_of_two(size) for size in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
