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


def padded(x, after=0, before=0):
    """The same numbers between others, so many after and before the channels of each token."""
    return torch.nn.functional.pad(x, (before, after))[..., before : before + x.shape[3]]


# each takes (batch, heads, tokens, channels)
LAYOUTS = {
    "contiguous": lambda x: x,
    "tokens first": lambda x: x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
    "channels before tokens": lambda x: x.mT.contiguous().mT,
    "a number between tokens": lambda x: padded(x, after=1),
    "an address between": lambda x: padded(x, after=15, before=1),
    "a number between heads": lambda x: torch.cat([x.flatten(2), x.new_zeros(*x.shape[:2], 1)], 2)[
        ..., :-1
    ].unflatten(2, x.shape[2:]),
    "heads in common": lambda x: x[:, :1].expand_as(x),
    "sequences in common": lambda x: x[:1].expand_as(x),
    "one sequence of any stride": lambda x: x[:1].as_strided((1, *x.shape[1:]), (7, *x.stride()[1:])),
}


def compiled_for(x):
    """What Triton compiles a kernel for: whether 16 divides numbers and addresses, and which numbers are 1."""
    if isinstance(x, torch.Tensor):
        return x.dtype, x.data_ptr() % 16 == 0
    if isinstance(x, tuple):
        return tuple(compiled_for(part) for part in x)
    return (x % 16 == 0, x == 1) if type(x) is int else x


@installed
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_and_addresses_launch_what_contiguous_tensors_do(layout, monkeypatch):
    from ordinate.ops.triton import attention, decode

    found = []
    for module in (attention, decode):
        monkeypatch.setattr(
            module, "launch", lambda function, grid, given, options: found.append(compiled_for(given))
        )

    def launched(q, k, gradient):
        found.clear()
        given = attention.Problem(q, k, k, torch.zeros(4, 95), *4 * [None], False, 0, 0, 47, False, 0.2, 0.0)
        attention.backward(gradient, given, attention.forward(given), learned=True)
        decode.decode(given._replace(q=q[:, :, :1]))
        return list(found)

    x = torch.randn(2, 4, 48, 32)
    made = LAYOUTS[layout](x)
    assert made.shape[1:] == x.shape[1:]
    usual = x[: len(made)].contiguous()
    assert len(launched(usual, usual, usual)) > 5
    assert launched(made, made, made) == launched(usual, usual, usual)


@installed
@pytest.mark.parametrize(
    ("layout", "width", "copied"),
    [
        ("contiguous", 32, False),
        ("tokens first", 32, False),
        ("heads in common", 32, False),
        ("one sequence of any stride", 32, False),
        ("channels before tokens", 32, True),
        ("a number between tokens", 32, True),
        ("an address between", 32, True),
        ("a number between heads", 32, True),
        # PyTorch's kernels load 8 numbers at a time
        ("a number between tokens", 40, True),
        ("a number between heads", 40, True),
        ("tokens first", 40, False),
        ("heads in common", 20, False),
        ("an address between", 40, True),
        ("channels before tokens", 40, True),
    ],
)
def test_tensors_are_copied_only_where_kernels_would_read_them_in_another_way(layout, width, copied):
    from ordinate.ops.triton.kernel import contiguous_channels

    x = LAYOUTS[layout](torch.randn(2, 4, 48, width))
    assert (contiguous_channels(x) is not x) == copied
    assert contiguous_channels(x).equal(x)


@installed
@pytest.mark.parametrize(("row", "copied"), [(2**23, False), (2**23 + 16, True)])
def test_tokens_so_far_apart_that_offsets_within_a_tile_overflow_are_copied(row, copied):
    from ordinate.ops.triton.kernel import contiguous_channels

    # as of a fused projection of many sequences and heads, with tokens first
    x = torch.empty_strided((1024, 64, 128, 32), (64 * 32, 32, row, 1), device="meta")
    found = contiguous_channels(x)
    assert (found is not x) == copied
    assert not copied or found.is_contiguous()


@pytest.mark.parametrize(("name", "kind"), [("gfx942:sramecc+:xnack-", "cdna"), ("gfx1100", "amd")])
def test_of_amds_gpus_mi300_has_configurations(name, kind, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=name))
    assert device_class(torch.device("cuda")) == kind
    assert (kind in TILES) == (kind == "cdna")


@pytest.mark.parametrize(
    ("capability", "kind"),
    [((8, 0), "ampere"), ((8, 9), "ampere"), ((9, 0), "hopper"), ((10, 0), "blackwell"), ((12, 0), "ampere")],
)
def test_nvidias_gpus_are_classed_by_instructions_and_shared_memory(capability, kind, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert device_class(torch.device("cuda")) == kind
