"""Build the C++ of this package once, on this machine, and keep the libraries in the user's cache folder.

Each `<name>.cpp` beside this file becomes a library of its own, with one function, `ordinate_<name>`: it takes the
address of a job, and returns what went wrong, or null.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
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
Function = Callable[[object], bytes | None]
# what this process has asked for
_ASKED: set[str] = set()


class UnavailableError(Exception):
    """There is no library, and why."""


def function(name: str) -> Function:
    """The function of a source, from the cache folder, or built now: some seconds, once for each version of PyTorch.

    Raises:
        UnavailableError: it is switched off (ORDINATE_NATIVE=off), or cannot be built here.
    """
    if os.environ.get(SWITCH, "").lower() in ("off", "0"):
        raise UnavailableError(f"it is switched off ({SWITCH})")
    _ASKED.add(name)
    found = _attempt(os.environ.get("XDG_CACHE_HOME"), name)
    if isinstance(found, str):
        raise UnavailableError(found)
    return found


def ready(name: str) -> bool:
    """Whether there is such a function already, because somebody needed it: nobody waits for it to be built."""
    return name in _ASKED and reason(name) is None


def reason(name: str) -> str | None:
    """Why there is no such function; None: there is one."""
    try:
        function(name)
    except UnavailableError as why:
        return str(why)
    return None


# a failure is remembered for as long as the process lives, so that each process tries once
@cache
def _attempt(caches: str | None, name: str) -> Function | str:
    unfit = _unfit()
    if unfit is not None:
        return unfit
    compiler = shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return "there is no C++ compiler (c++, g++ or clang++)"
    folder = Path(caches or "~/.cache").expanduser() / "ordinate"
    try:
        return _cached(folder, name, compiler)
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


def _cached(folder: Path, name: str, compiler: str) -> Function:
    """The function for this version, PyTorch, compiler and processor; a library that is broken is built again."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = _key(name, compiler)
    for path in folder.glob(f"{name}-{key}-*.so"):
        # the name tells the content: what was cut short or changed is never loaded
        if path.stem.rpartition("-")[2] == _digest(path.read_bytes()):
            return _load(path, name)
    return _load(_build(folder, name, key, compiler), name)


def _key(name: str, compiler: str) -> str:
    """Everything that the machine code depends on."""
    parts = [path.read_bytes() for path in (SOURCES / f"{name}.cpp", *sorted(SOURCES.glob("*.h")))]
    parts += [text.encode() for text in (torch.__version__, torch.__file__, compiler, *FLAGS, _processor())]
    return _digest(b"\0".join(parts))


def _processor() -> str:
    """What this processor can do: one home folder may serve machines that differ."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("flags")), platform.processor())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _build(folder: Path, name: str, key: str, compiler: str) -> Path:
    print(f"ordinate: building its C++ {name}, once, in some seconds", file=sys.stderr, flush=True)  # noqa: T201
    home = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as room:
        made = Path(room) / f"{name}.so"
        command = [compiler, *FLAGS, abi, f"-I{home / 'include'}", str(SOURCES / f"{name}.cpp")]
        command += ["-o", str(made), f"-L{home / 'lib'}", "-ltorch_cpu", "-lc10"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        final = folder / f"{name}-{key}-{_digest(made.read_bytes())}.so"
        # into place in one step: other processes build at the same time, and read while this one writes
        os.replace(made, final)
    return final


def _load(path: Path, name: str) -> Function:
    found = getattr(ctypes.CDLL(str(path)), f"ordinate_{name}")
    found.argtypes, found.restype = (ctypes.c_void_p,), ctypes.c_char_p
    return found
