"""The C++ kernels on ARM: cross-compiled, and run under emulation on the jobs that their Python wrappers make."""

import ctypes
import gc
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ordinate import Geometry, attend, mixers
from ordinate.attention.backends import decode, native
from ordinate.ops import linear_layer, mlp_bias, rotate
from ordinate.ops.gelu import gelu, gelu_tanh
from ordinate.ops.native import build, compiler, scan
from ordinate.ops.native.transpose import transposed_copy
from ordinate.ops.rms_norm import RMSNorm
from ordinate.schemes import T5, Alibi, NoPosition, Rope
from ordinate.testing.tolerance import assert_as_close

CROSS, EMULATOR = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
DRIVER = Path(__file__).parent / "arm" / "driver.cpp"
TOKENS = 131
# those of the compiler but for the processor; linked statically, so that the emulator needs no other files
FLAGS = (*(flag for flag in compiler.FLAGS if flag not in ("-shared", "-fPIC")), "-march=armv8-a", "-static")
Case = Callable[[torch.dtype], list[Tensor]]


def heads(count: int, tokens: int, dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(2, 4, tokens, 24).to(dtype).requires_grad_() for _ in range(count)]


def attention(dtype: torch.dtype) -> list[Tensor]:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    q, k, v = heads(3, TOKENS, dtype)
    out = attend(q, k, v, scheme.to(dtype).at(Geometry.causal(TOKENS)))
    return [out, *torch.autograd.grad(out, (q, k, v, scheme.table), torch.randn(out.shape).to(dtype))]


def rotation(dtype: torch.dtype) -> list[Tensor]:
    (x,) = heads(1, TOKENS, dtype)
    out, _ = Rope(head_width=24).at(Geometry.causal(TOKENS)).encode(x, x).pair
    return [out, *torch.autograd.grad(out, x, torch.randn(out.shape).to(dtype))]


@torch.no_grad()
def few_queries(dtype: torch.dtype) -> list[Tensor]:
    q, k, v = torch.randn(2, 4, 1, 24).to(dtype), *heads(2, TOKENS, dtype)
    return [attend(q, k, v, Alibi(heads=4).at(Geometry.causal(1, cached=TOKENS - 1)))]


@torch.no_grad()
def few_vectors(dtype: torch.dtype) -> list[Tensor]:
    return [linear_layer.linear(torch.randn(3, 301).to(dtype), torch.randn(257, 301).to(dtype))]


def rows(dtype: torch.dtype) -> list[Tensor]:
    x = torch.randn(TOKENS, 301).to(dtype).requires_grad_()
    norm = RMSNorm(301).to(dtype)
    out = gelu_tanh(gelu(norm(x)))
    return [out, *torch.autograd.grad(out, [x, norm.weight], torch.randn(out.shape).to(dtype))]


def transpose(_: torch.dtype) -> list[Tensor]:
    x = torch.randn(TOKENS, 35)
    return [transposed_copy(x) if build.unavailable_reason("transpose") is None else x.t().contiguous()]


def lines(dtype: torch.dtype) -> list[Tensor]:
    x, (inner, outer) = torch.rand(2, TOKENS, 35, dtype=torch.float64), (torch.nn.Linear(1, 7), torch.nn.Linear(7, 3))
    learned = [x.requires_grad_(), *inner.to(dtype).parameters(), *outer.to(dtype).parameters()]
    out = mlp_bias.scalar_relu_mlp(x, inner, outer, dtype)
    return [out, *torch.autograd.grad(out, learned, torch.randn(out.shape).to(dtype))]


def mixer(name: str, **sizes: int) -> Case:
    def case(dtype: torch.dtype) -> list[Tensor]:
        model = getattr(mixers, name)(width=48, **sizes)
        with torch.no_grad():
            # zero-initialised projections would hide everything behind them
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        x = torch.randn(2, TOKENS, 48).to(dtype).requires_grad_()
        out, _ = model.to(dtype)(x, NoPosition().at(Geometry.causal(TOKENS)))
        learned = [x, *(parameter for parameter in model.parameters() if parameter.requires_grad)]
        return [out, *torch.autograd.grad(out, learned, torch.randn(out.shape).to(dtype))]

    return case


CASES = {
    "attention": (attention, {"attention", "largest"}),
    "rotation": (rotation, {"rotation"}),
    "few queries": (few_queries, {"decode"}),
    "few vectors": (few_vectors, {"linear"}),
    "rows": (rows, {"gelu", "rms_norm"}),
    "transpose": (transpose, {"transpose"}),
    "lines": (lines, {"piecewise_linear"}),
    "performer": (mixer("Performer", heads=4), {"performer"}),
    "rwkv4": (mixer("Rwkv4"), {"wkv"}),
    "rwkv6": (mixer("Rwkv6", heads=4), {"blend", "recurrence", "gated_norm"}),
    "rwkv7": (mixer("Rwkv7", heads=4), {"blend", "recurrence", "gated_norm", "correction"}),
}
# without the toolchain of ARM there is no case
PRESENT = list(CASES) if CROSS and EMULATOR else []


class Emulator:
    """Kernels of ARM, in the place of those of this machine; `called` are the names of those that were called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.called = folder, set()

    def load(self, caches: str | None, name: str) -> build.Function:
        return lambda reference: self.run(name, reference._obj)

    def run(self, name: str, job: ctypes.Structure) -> bytes | None:
        self.called.add(name)
        used, addresses = [], []
        memory = tensors()
        for at, address in pointers(job):
            # an address in no tensor is that of a flag
            region = next(((begin, size) for begin, size in memory if begin <= address < begin + size), (address, 1))
            if region not in used:
                used.append(region)
            addresses += [at, used.index(region), address - region[0]]
        parts = [numbers(ctypes.sizeof(job)), bytes(job), numbers(len(used))]
        parts += [part for begin, size in used for part in (numbers(size), ctypes.string_at(begin, size))]
        file = self.folder / "job"
        file.write_bytes(b"".join([*parts, numbers(len(addresses) // 3, *addresses)]))
        subprocess.run([EMULATOR, self.program(name), file], check=True, env={"OMP_NUM_THREADS": "2"}, timeout=120)
        made, end = file.read_bytes(), 0
        for begin, size in used:
            ctypes.memmove(begin, made[end : end + size], size)
            end += size
        return made[end:] or None

    def program(self, name: str) -> Path:
        made = self.folder / name
        if not made.exists():
            include = Path(torch.__file__).parent / "include"
            abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
            sources = [compiler.SOURCES / f"{name}.cpp", DRIVER]
            command = [CROSS, *FLAGS, abi, f"-DKERNEL=ordinate_{name}", f"-I{include}", *sources, "-o", made]
            subprocess.run(command, check=True, timeout=300)
        return made


def tensors() -> set[tuple[int, int]]:
    """Address and size of the memory of each tensor that exists."""
    storages = (x.untyped_storage() for x in gc.get_objects() if type(x) in (Tensor, torch.nn.Parameter))
    return {(storage.data_ptr(), storage.nbytes()) for storage in storages}


def numbers(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def pointers(job: ctypes.Structure | ctypes.Array, begin: int = 0) -> list[tuple[int, int]]:
    """The place of each address in a job, and the address; arrays and views of tensors are searched."""
    found = []
    if isinstance(job, ctypes.Array):
        members = [(job[i], i * ctypes.sizeof(job._type_), job._type_) for i in range(len(job))]
    else:
        members = [(getattr(job, name), getattr(type(job), name).offset, kind) for name, kind in job._fields_]
    for value, offset, kind in members:
        if kind is ctypes.c_void_p and value:
            found.append((begin + offset, value))
        elif isinstance(value, ctypes.Structure | ctypes.Array):
            found += pointers(value, begin + offset)
    return found


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return tmp_path_factory.mktemp("arm")


@pytest.fixture
def small(monkeypatch):
    """The sizes from which kernels are used: a few tokens here."""
    for module, name in [
        (native, "MIN_PAIRS"),
        (native, "MIN_HEAD_PAIRS"),
        (scan, "MIN_ELEMENTS"),
        (decode, "MIN_CPP_ELEMENTS"),
        (rotate, "MIN_NATIVE_ELEMENTS"),
        (mlp_bias, "MIN_NATIVE"),
    ]:
        monkeypatch.setattr(module, name, 1)


@pytest.mark.extended
@pytest.mark.parametrize("name", PRESENT)
def test_kernels_compute_on_arm_what_pytorch_does(name, programs, small, monkeypatch):
    case, kernels = CASES[name]

    def results(dtype: torch.dtype) -> list[Tensor]:
        torch.manual_seed(0)
        return case(dtype)

    plain, exact = results(torch.float32), results(torch.float64)
    emulator = Emulator(programs)
    monkeypatch.delenv(compiler.ENV_VARIABLE)
    monkeypatch.setattr(build, "_attempt", emulator.load)
    ours = results(torch.float32)
    assert emulator.called == kernels
    for out, one, other in zip(ours, plain, exact, strict=True):
        assert_as_close(out, one, other, factor=3.0)


@pytest.mark.parametrize("name", ["rotation", "few vectors", "few queries"] if PRESENT else [])
@pytest.mark.extended
def test_bfloat16_is_rounded_on_arm_as_here(name, programs, small, monkeypatch):
    case, kernels = CASES[name]
    torch.manual_seed(0)
    exact = case(torch.float64)
    torch.manual_seed(0)
    plain = case(torch.bfloat16)
    emulator = Emulator(programs)
    monkeypatch.delenv(compiler.ENV_VARIABLE)
    monkeypatch.setattr(build, "_attempt", emulator.load)
    torch.manual_seed(0)
    for out, one, other in zip(case(torch.bfloat16), plain, exact, strict=True):
        assert_as_close(out, one, other, factor=3.0)
    assert emulator.called == kernels


def test_every_kernel_has_a_case():
    assert set().union(*(kernels for _, kernels in CASES.values())) == set(compiler.kernel_names())
