"""Compilation of the C++ kernels, ahead of time or on first use, and their loading.

Each `<name>.cpp` in this folder is compiled to its own library with one function, `ordinate_<name>`: it takes the
address of a job, and returns an error message or null.
"""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from filelock import FileLock

from ordinate.ops.native.compiler import ENV_VARIABLE, OFF, Compiler, UnavailableError, find_compiler, kernel_names
from ordinate.ops.native.library_cache import compile_library, find_library, open_cache

Function = Callable[[object], bytes | None]
# kernels that this process has requested
_ASKED: set[str] = set()


@dataclass(frozen=True)
class KernelBuild:
    """A kernel after `build_kernels`.

    Args:
        name: name of the kernel.
        path: its library; None: there is none.
        seconds: time of the compilation; None: it was not compiled now.
        problem: what the compiler said, if it failed.
    """

    name: str
    path: Path | None
    seconds: float | None = None
    problem: str | None = None


def build_kernels(*, on_built: Callable[[KernelBuild], None] = lambda built: None) -> list[KernelBuild]:
    """Compile all C++ kernels that are not in the cache yet, in parallel, one for each core.

    Args:
        on_built: called for each kernel that has been compiled, or could not be.

    Returns:
        All kernels, by name.

    Raises:
        UnavailableError: kernels are disabled, this machine is not supported, it has no compiler, or its cache folder
            is open to other users.
    """
    return _build(find_compiler(), open_cache(), on_built)


def built_kernels() -> list[KernelBuild]:
    """Return all kernels with the libraries that are in the cache; compile none.

    Raises:
        UnavailableError: as `build_kernels`.
    """
    compiler, folder = find_compiler(), open_cache()
    return [KernelBuild(name, find_library(folder, name, compiler)) for name in kernel_names()]


def load_kernel(name: str) -> Function:
    """Load a kernel from the cache folder; if it is not there, compile all kernels that are not, once.

    Raises:
        UnavailableError: kernels are disabled (ORDINATE_NATIVE=off), or cannot be compiled here.
    """
    if os.environ.get(ENV_VARIABLE, "").lower() in OFF:
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
        compiler, folder = find_compiler(), open_cache()
        path = find_library(folder, name, compiler)
        if path is not None:
            return _load(path, name)
        built = next(built for built in _build(compiler, folder, notice=True) if built.name == name)
        return _load(built.path, name) if built.path else f"compilation failed: {_first_error(built.problem or '')}"
    except UnavailableError as why:
        return str(why)
    # whatever fails here, without a home folder for example, another backend can take the call
    except Exception as error:
        return f"compilation failed: {_first_error(str(error))}"


def _build(
    compiler: Compiler,
    folder: Path,
    on_built: Callable[[KernelBuild], None] = lambda built: None,
    *,
    notice: bool = False,
) -> list[KernelBuild]:
    with _locked(folder):
        found = [KernelBuild(name, find_library(folder, name, compiler)) for name in kernel_names()]
        missing = [kernel.name for kernel in found if kernel.path is None]
        if notice and missing:
            told = f"ordinate: compiling {len(missing)} C++ kernels (once, some seconds; or ahead: ordinate build)"
            print(told, file=sys.stderr, flush=True)  # noqa: T201
        compiled = {kernel.name: kernel for kernel in _compiled(missing, compiler, folder, on_built)}
    return [compiled.get(kernel.name, kernel) for kernel in found]


def _compiled(
    names: Sequence[str], compiler: Compiler, folder: Path, on_built: Callable[[KernelBuild], None]
) -> list[KernelBuild]:
    def one(name: str) -> KernelBuild:
        begin = time.perf_counter()
        path, problem = None, None
        try:
            path = compile_library(folder, name, compiler)
        except subprocess.CalledProcessError as error:
            problem = error.stderr.strip() or f"the compiler exited with {error.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        built = KernelBuild(name, path, time.perf_counter() - begin, problem)
        on_built(built)
        return built

    # the threads only wait for compilers
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as threads:
        return list(threads.map(one, names))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time compile, so that those that start together do not compile everything twice."""
    lock = FileLock(folder / ".lock")
    # without locks on a file system, compiling twice is slow but safe: libraries are renamed into place
    with suppress(NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _first_error(text: str) -> str:
    lines = text.strip().splitlines()
    return next((line for line in lines if "error" in line), lines[-1] if lines else "")


def _load(path: Path, name: str) -> Function:
    found = getattr(ctypes.CDLL(str(path)), f"ordinate_{name}")
    found.argtypes, found.restype = (ctypes.c_void_p,), ctypes.c_char_p
    return found
