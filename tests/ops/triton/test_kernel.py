"""Launches, without a GPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from ordinate.ops.triton.tiles import TILES, device_class
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


@installed
@pytest.mark.parametrize(("hip", "asked"), [(None, {"num_warps": 4, "maxnreg": 248}), ("7.0", {"num_warps": 4})])
def test_options_of_nvidias_compiler_are_left_out_on_amd(hip, asked, monkeypatch):
    from ordinate.ops.triton.kernel import OPTIONS, launch

    launches = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *given, **options: launches.append(options)

    monkeypatch.setattr(torch.version, "hip", hip)
    launch(Kernel(), (1,), (SimpleNamespace(device=torch.device("cpu")),), {"num_warps": 4, "maxnreg": 248})
    assert launches == [OPTIONS | asked]


@pytest.mark.parametrize(("name", "kind"), [("gfx942:sramecc+:xnack-", "cdna"), ("gfx1100", "amd")])
def test_of_amds_gpus_mi300_has_configurations(name, kind, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=name))
    assert device_class(torch.device("cuda")) == kind
    assert (kind in TILES) == (kind == "cdna")
