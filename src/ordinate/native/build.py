"""Build the C++ of this package once, on this machine, and keep the library in the user's cache folder."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

SWITCH = "ORDINATE_NATIVE"
SOURCES = Path(__file__).parent
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp",
    "-fPIC",
    "-shared",
)


class UnavailableError(Exception):
    """There is no library, and why."""


def library() -> ctypes.CDLL:
    """The library, from the cache folder, or built now: a few seconds, once for each version of PyTorch.

    Raises:
        UnavailableError: it is switched off (ORDINATE_NATIVE=off), or cannot be built here.
    """
    if os.environ.get(SWITCH, "").lower() in ("off", "0"):
        raise UnavailableError(f"it is switched off ({SWITCH})")
    return _library(_folder())


def reason() -> str | None:
    """Why there is no library; None: there is one."""
    try:
        library()
    except UnavailableError as why:
        return str(why)
    return None


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "ordinate"


# a failure is remembered for as long as the process lives, so that each process tries once
@cache
def _attempt(folder: Path) -> ctypes.CDLL | str:
    unfit = _unfit()
    if unfit is not None:
        return unfit
    compiler = shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return "there is no C++ compiler (c++, g++ or clang++)"
    try:
        return _cached(folder, compiler)
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"building it failed: {next((line for line in said if 'error' in line), said[-1] if said else '')}"


def _unfit() -> str | None:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return f"it is made for Linux on x86 processors; this is {sys.platform} on {platform.machine()}"
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        return f"it needs a processor with AVX2; PyTorch finds {capability} here"
    return None


def _library(folder: Path) -> ctypes.CDLL:
    found = _attempt(folder)
    if isinstance(found, str):
        raise UnavailableError(found)
    return found


def _cached(folder: Path, compiler: str) -> ctypes.CDLL:
    """The library of this version, PyTorch, compiler and processor; one that is broken is built again."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = _key(compiler)
    for path in folder.glob(f"native-{key}-*.so"):
        # the name tells the content: what was cut short or changed is never loaded
        if path.stem.rpartition("-")[2] == _digest(path.read_bytes()):
            return _load(path)
    return _load(_build(folder, key, compiler))


def _key(compiler: str) -> str:
    """Everything that the machine code depends on."""
    parts = [path.read_bytes() for path in sorted((*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")))]
    parts += [text.encode() for text in (torch.__version__, torch.__file__, compiler, *FLAGS, _processor())]
    return _digest(b"\0".join(parts))


def _processor() -> str:
    """What this processor can do: home folders are shared by machines that differ."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("flags")), platform.processor())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _build(folder: Path, key: str, compiler: str) -> Path:
    print("ordinate: building its C++ attention, once, in about 10 seconds", file=sys.stderr, flush=True)  # noqa: T201
    home = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as room:
        made = Path(room) / "native.so"
        command = [compiler, *FLAGS, abi, f"-I{home / 'include'}", str(SOURCES / "attention.cpp")]
        command += ["-o", str(made), f"-L{home / 'lib'}", "-ltorch_cpu", "-lc10"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        final = folder / f"native-{key}-{_digest(made.read_bytes())}.so"
        # into place in one step: other processes build at the same time, and read while this one writes
        os.replace(made, final)
    return final


def _load(path: Path) -> ctypes.CDLL:
    found = ctypes.CDLL(str(path))
    for function in (found.ordinate_forward, found.ordinate_backward):
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_bool), ctypes.c_char_p
    return found
