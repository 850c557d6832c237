"""The C++ compiler of this machine: where kernels can be compiled, and by which command."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch

ENV_VARIABLE = "ORDINATE_NATIVE"
SOURCES = Path(__file__).parent
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared")
PROCESSOR_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"x86_64": ("-march=native", "-mprefer-vector-width=512"), "aarch64": ("-mcpu=native",)}
)
# where PyTorch uses AVX2, by its own choice or by ATEN_CPU_CAPABILITY=avx2, so do the kernels
NO_AVX512 = ("-mno-avx512f", "-mprefer-vector-width=256")
# seconds after which a compilation is ended
PATIENCE = 300
OFF, ON = ("off", "0"), ("on", "1")


class UnavailableError(Exception):
    """The C++ kernels are not available; the message is the reason, and what to do if something can be done."""


class Compiler(NamedTuple):
    """A C++ compiler.

    Args:
        command: path of the program, and arguments that come before all others.
    """

    command: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command with the flags of this processor and of PyTorch's binaries, without files."""
        home = Path(torch.__file__).parent
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        less = NO_AVX512 if torch.backends.cpu.get_cpu_capability() == "AVX2" else ()
        return *self.command, *FLAGS, *PROCESSOR_FLAGS[platform.machine()], *less, abi, f"-I{home / 'include'}"

    def compile(self, name: str, target: Path) -> None:
        """Compile the kernel `name` to the shared library `target`.

        Raises:
            subprocess.CalledProcessError: the compiler failed; stderr says why.
            subprocess.TimeoutExpired: it took longer than five minutes.
        """
        libraries = f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu", "-lc10"
        command = [*self.arguments, str(SOURCES / f"{name}.cpp"), "-o", str(target), *libraries]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)


def kernel_names() -> tuple[str, ...]:
    """Return the names of all kernels: their sources are `<name>.cpp` in this folder."""
    return tuple(sorted(path.stem for path in SOURCES.glob("*.cpp")))


def find_compiler() -> Compiler:
    """Find the compiler: $CXX, or c++, g++ or clang++.

    Raises:
        UnavailableError: kernels are disabled (ORDINATE_NATIVE=off), this machine is not supported, or it has no
            compiler.
    """
    reason = _unfit()
    if reason is not None:
        raise UnavailableError(reason)
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen:
        program = shutil.which(chosen[0])
        if program is None:
            raise UnavailableError(f"CXX must name a C++ compiler; got {chosen[0]}, which was not found; unset CXX")
        return Compiler((program, *chosen[1:]))
    program = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)
    if program is None:
        raise UnavailableError("no C++ compiler was found (c++, g++ or clang++); install one: apt-get install g++")
    return Compiler((program,))


def describe_processor() -> str:
    """Return the processor's feature flags, since machines with different processors may share a home folder."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _unfit() -> str | None:
    """Return why kernels cannot or must not be used on this machine; None: they can."""
    setting = os.environ.get(ENV_VARIABLE, "").lower()
    if setting in OFF:
        return f"the C++ kernels are disabled ({ENV_VARIABLE})"
    if sys.platform != "linux" or platform.machine() not in PROCESSOR_FLAGS:
        return f"the C++ kernels require Linux on x86-64 or ARM; this is {sys.platform} on {platform.machine()}"
    if platform.machine() == "aarch64":
        # nobody has measured that they are faster there
        told = f"on ARM the C++ kernels are tested under emulation only; {ENV_VARIABLE}=on enables them"
        return None if setting in ON else told
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        return f"the C++ kernels require AVX2; PyTorch reports {capability}"
    return None
