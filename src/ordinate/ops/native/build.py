"""Just-in-time compilation of the C++ kernels, with shared libraries cached in the user's cache folder.

Each `<name>.cpp` in this folder is compiled to its own library with one function, `ordinate_<name>`: it takes the
address of a job, and returns an error message or null.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

ENV_VARIABLE = "ORDINATE_NATIVE"
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
# kernels that this process has requested
_ASKED: set[str] = set()


class UnavailableError(Exception):
    """A kernel is not available; the message is the reason."""


def load_kernel(name: str) -> Function:
    """Load a kernel from the cache folder, or compile it now: some seconds, once for each version of PyTorch.

    Raises:
        UnavailableError: kernels are disabled (ORDINATE_NATIVE=off), or cannot be compiled here.
    """
    if os.environ.get(ENV_VARIABLE, "").lower() in ("off", "0"):
        raise UnavailableError(f"the C++ kernels are disabled ({ENV_VARIABLE})")
    _ASKED.add(name)
    found = _attempt(os.environ.get("XDG_CACHE_HOME"), name)
    if isinstance(found, str):
        raise UnavailableError(found)
    return found


def is_loaded(name: str) -> bool:
    """Whether this process has loaded a kernel already; never compiles one."""
    return name in _ASKED and unavailable_reason(name) is None


def unavailable_reason(name: str) -> str | None:
    """Return why a kernel is not available, compiling it if needed; None: it is available."""
    try:
        load_kernel(name)
    except UnavailableError as why:
        return str(why)
    return None


# failures are cached as well, so that each process tries only once
@cache
def _attempt(caches: str | None, name: str) -> Function | str:
    try:
        unfit = _unfit()
        if unfit is not None:
            return unfit
        compiler = shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            return "no C++ compiler was found (c++, g++ or clang++)"
        folder = _folder(caches)
        return unsafe_folder_reason(folder) or _cached(folder, name, compiler)
    # whatever fails here, without a home folder for example, another backend can take the call
    except Exception as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"compilation failed: {next((line for line in said if 'error' in line), said[-1] if said else '')}"


def _folder(caches: str | None) -> Path:
    """Return the cache folder, without symbolic links; it is created if need be, for this user only."""
    folder = Path(caches or "~/.cache").expanduser() / "ordinate"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()


def unsafe_folder_reason(folder: Path) -> str | None:
    """Return why libraries in a folder must not be loaded: another user could put one there; None: nobody could."""
    unsafe = next((path for path in folder.parents if _is_open(path.stat().st_mode)), None)
    if unsafe is None and _is_private(folder):
        return None
    found = (unsafe or folder).stat()
    came = f"{unsafe or folder} has mode {stat.S_IMODE(found.st_mode):o} and owner {found.st_uid}"
    remedy = f"chmod go-w {unsafe or folder}, or set XDG_CACHE_HOME to a folder of your own"
    return f"only you may write to the cache folder of C++ kernels; {came}; {remedy}"


def _is_open(mode: int) -> bool:
    """Whether anybody can replace the entries of a folder; the sticky bit, as of /tmp, leaves it to their owners."""
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _is_private(path: Path) -> bool:
    """Whether a file or folder belongs to this user or root, and nobody else may write to it."""
    found = path.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _unfit() -> str | None:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return f"the C++ kernels require Linux on x86-64; this is {sys.platform} on {platform.machine()}"
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        return f"the C++ kernels require AVX2; PyTorch reports {capability}"
    return None


def _cached(folder: Path, name: str, compiler: str) -> Function:
    """Load the kernel for this version, PyTorch, compiler and processor; corrupt libraries are compiled again."""
    key = _key(name, compiler)
    for path in folder.glob(f"{name}-{key}-*.so"):
        # the file name contains a digest of the library: a truncated or changed file is never loaded; another user
        # may have written one while the folder was open to all
        if _is_private(path) and path.stem.rpartition("-")[2] == _digest(path.read_bytes()):
            return _load(path, name)
    return _load(_build(folder, name, key, compiler), name)


def _key(name: str, compiler: str) -> str:
    """Digest of everything that the machine code depends on."""
    parts = [path.read_bytes() for path in (SOURCES / f"{name}.cpp", *sorted(SOURCES.glob("*.h")))]
    parts += [text.encode() for text in (torch.__version__, torch.__file__, compiler, *FLAGS, _processor())]
    return _digest(b"\0".join(parts))


def _processor() -> str:
    """Return the processor's feature flags, since machines with different processors may share a home folder."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("flags")), platform.processor())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _build(folder: Path, name: str, key: str, compiler: str) -> Path:
    print(f"ordinate: compiling the C++ kernel {name} (once, some seconds)", file=sys.stderr, flush=True)  # noqa: T201
    home = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as room:
        made = Path(room) / f"{name}.so"
        command = [compiler, *FLAGS, abi, f"-I{home / 'include'}", str(SOURCES / f"{name}.cpp")]
        command += ["-o", str(made), f"-L{home / 'lib'}", "-ltorch_cpu", "-lc10"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        made.chmod(0o700)
        final = folder / f"{name}-{key}-{_digest(made.read_bytes())}.so"
        # an atomic rename: other processes may compile or load the same library at the same time
        os.replace(made, final)
    return final


def _load(path: Path, name: str) -> Function:
    found = getattr(ctypes.CDLL(str(path)), f"ordinate_{name}")
    found.argtypes, found.restype = (ctypes.c_void_p,), ctypes.c_char_p
    return found
