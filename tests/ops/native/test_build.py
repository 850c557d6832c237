import os
import platform
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from ordinate import Geometry, explain
from ordinate.cli.build import build as command
from ordinate.ops.native import build, library_cache
from ordinate.ops.native import compiler as compilers
from ordinate.schemes import Alibi

LONG = Geometry.causal(500)
# few, for speed
KERNELS = ("attention", "rotation", "wkv")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with an empty cache folder, where only the compilers of a test are found."""
    monkeypatch.delenv(compilers.ENV_VARIABLE)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(build, "kernel_names", lambda: KERNELS)
    if compilers._unfit() is not None:
        pytest.skip(compilers._unfit())
    return tmp_path


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library that exports the functions of all kernels, with no-op bodies."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("library")
    names = compilers.kernel_names()
    lines = (f'extern "C" const char* ordinate_{name}() {{ return "x"; }}\n' for name in names)
    (folder / "a.cpp").write_text("".join(lines))
    subprocess.run([compiler, "-shared", "-fPIC", folder / "a.cpp", "-o", folder / "a.so"], check=True)
    return folder / "a.so"


def compiler(machine, python):
    """Put a compiler in place that runs these lines; `out` is where its result belongs, `name` the kernel's name."""
    program = "\n".join(
        [
            f"#!{sys.executable} -S",
            "import sys, shutil, time, pathlib",
            "out = sys.argv[sys.argv.index('-o') + 1]",
            "name = pathlib.Path(out).stem",
            f"with open({str(machine / 'runs')!r}, 'a') as runs: runs.write(name + '\\n')",
            textwrap.dedent(python),
        ]
    )
    path = machine / "bin" / "c++"
    path.write_text(program)
    path.chmod(0o755)


def copies(library):
    return f"shutil.copy({str(library)!r}, out)"


def runs(machine):
    """The kernels that were compiled."""
    return (machine / "runs").read_text().split() if (machine / "runs").exists() else []


def attempt(machine, name="attention"):
    """As a new process does it."""
    build._attempt.cache_clear()
    try:
        return build.unavailable_reason(name)
    finally:
        build._attempt.cache_clear()


def libraries(machine, name="*"):
    return sorted((machine / "cache" / "ordinate").glob(f"{name}-*.so"))


def test_the_first_use_of_a_kernel_compiles_all_with_a_notice(machine, library, capfd):
    compiler(machine, copies(library))
    assert attempt(machine) is None
    assert f"compiling {len(KERNELS)} C++ kernels (once" in capfd.readouterr().err
    assert [attempt(machine, name) for name in KERNELS] == [None] * len(KERNELS)
    assert capfd.readouterr().err == ""
    assert sorted(runs(machine)) == sorted(KERNELS)
    assert [path.name.partition("-")[0] for path in libraries(machine)] == list(KERNELS)


def test_kernels_are_compiled_at_the_same_time(machine, library, monkeypatch):
    # each waits until another one has started: one after another, they would wait in vain
    waits = "for _ in range(500):\n    if len(runs_path.read_text().split()) > 1: break\n    time.sleep(0.01)\n"
    waits += "else: sys.exit('alone')\n"
    compiler(machine, f"runs_path = pathlib.Path({str(machine / 'runs')!r})\n{waits}{copies(library)}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert all(kernel.path for kernel in build.build_kernels())


def test_the_command_says_what_it_compiled_where_and_how_long(machine, library, capfd):
    compiler(machine, copies(library))
    assert command(check=True) == 1
    assert f"0 of {len(KERNELS)} kernels are ready" in capfd.readouterr().out
    assert runs(machine) == []
    assert command() == 0
    said = capfd.readouterr().out
    assert "attention    compiled  0." in said
    assert f"{len(KERNELS)} of {len(KERNELS)} kernels are ready, {len(KERNELS)} compiled now in " in said
    assert str(machine / "cache" / "ordinate") in said
    assert command(check=True) == 0
    assert "attention    ready" in capfd.readouterr().out
    assert len(runs(machine)) == len(KERNELS)


def test_the_command_shows_the_compilers_message_of_each_kernel_that_fails(machine, library, capfd):
    fails = "if name == 'wkv': print('wkv.cpp:7: error: [no] such header\\n  7 | x', file=sys.stderr); sys.exit(1)\n"
    compiler(machine, fails + copies(library))
    assert command() == 1
    said = capfd.readouterr().out
    assert "wkv          failed" in said
    assert "wkv.cpp:7: error: [no] such header\n  7 | x\n" in said
    assert f"{len(KERNELS) - 1} of {len(KERNELS)} kernels are ready" in said
    # the others are not affected
    assert attempt(machine, "attention") is None
    assert attempt(machine, "wkv") == "compilation failed: wkv.cpp:7: error: [no] such header"


def test_without_a_compiler_the_command_says_what_to_do(machine, capfd):
    assert command() == 1
    told = "not available: no C++ compiler was found (c++, g++ or clang++); install one: apt-get install g++\n"
    assert capfd.readouterr().out == told


@pytest.mark.parametrize("damage", [b"", b"\x7fELF"])
def test_a_library_that_was_cut_short_is_built_again(machine, library, damage):
    compiler(machine, copies(library))
    assert attempt(machine) is None
    (built,) = libraries(machine, "attention")
    # this process still reads the old file
    built.unlink()
    built.write_bytes(damage)
    assert attempt(machine) is None
    assert runs(machine).count("attention") == 2
    assert len(runs(machine)) == len(KERNELS) + 1


@pytest.mark.parametrize("change", ["torch", "flags", "processor"])
def test_what_was_built_for_something_else_is_not_used(machine, library, change, monkeypatch):
    compiler(machine, copies(library))
    assert attempt(machine) is None
    if change == "torch":
        monkeypatch.setattr(torch, "__version__", "9.9")
    elif change == "flags":
        monkeypatch.setattr(compilers, "FLAGS", (*compilers.FLAGS, "-g"))
    else:
        monkeypatch.setattr(library_cache, "describe_processor", lambda: "flags: one more")
    assert attempt(machine) is None
    assert runs(machine).count("attention") == 2


@pytest.mark.extended
def test_processes_that_build_at_once_do_not_disturb_each_other(machine, library):
    slow = f"content = pathlib.Path({str(library)!r}).read_bytes()\nwith open(out, 'wb') as file:\n"
    slow += "    file.write(content[:100]); file.flush(); time.sleep(0.5); file.write(content[100:])"
    compiler(machine, slow)
    program = "from ordinate.ops.native import build; assert build.unavailable_reason('attention') is None"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    both = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    # the second has waited for the first
    assert len(libraries(machine)) == len(runs(machine)) == len(compilers.kernel_names())


def test_on_a_file_system_without_locks_kernels_are_compiled_all_the_same(machine, library, monkeypatch):
    def refuse(lock):
        raise NotImplementedError

    compiler(machine, copies(library))
    monkeypatch.setattr(build.FileLock, "acquire", refuse)
    assert attempt(machine) is None


def said(machine):
    q = torch.zeros(1, 4, 500, 8)
    build._attempt.cache_clear()
    told = explain(q, q, q, Alibi(heads=4).at(LONG))
    build._attempt.cache_clear()
    assert told.backend == "offset_bias"
    return told.unsupported["native"]


def test_without_a_compiler_another_backend_takes_the_call(machine):
    told = "no C++ compiler was found (c++, g++ or clang++); install one: apt-get install g++"
    assert said(machine) == told


def test_a_failing_compiler_is_reported_and_another_backend_takes_the_call(machine):
    compiler(machine, "print('a.cpp:1: error: no such header', file=sys.stderr); sys.exit(1)")
    assert said(machine) == "compilation failed: a.cpp:1: error: no such header"
    assert libraries(machine) == []


def test_the_compiler_is_the_one_of_the_environment(machine, library, monkeypatch):
    compiler(machine, f"if '--plain' not in sys.argv: sys.exit(1)\n{copies(library)}")
    (machine / "bin" / "c++").rename(machine / "bin" / "my-c++")
    monkeypatch.setenv("CXX", "my-c++ --plain")
    assert attempt(machine) is None
    monkeypatch.setenv("CXX", "another-c++")
    told = "CXX must name a C++ compiler; got another-c++, which was not found; unset CXX"
    assert attempt(machine) == told


@pytest.mark.parametrize(("capability", "expected"), [("AVX2", True), ("AVX512", False)])
def test_where_pytorch_is_kept_from_avx512_so_are_the_kernels(capability, expected, monkeypatch):
    monkeypatch.setattr(compilers.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    arguments = compilers.Compiler(("c++",)).arguments
    assert ("-mno-avx512f" in arguments) is expected
    # after -march=native, which would enable it again
    assert not expected or arguments.index("-mno-avx512f") > arguments.index("-march=native")


def test_a_library_without_our_functions_is_refused(machine, library):
    compiler(machine, "shutil.copy('/bin/sh', out)")
    assert said(machine).startswith("compilation failed: ")


def test_an_unwritable_cache_folder_is_reported(machine, monkeypatch):
    compiler(machine, "")
    (machine / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    assert said(machine).startswith("compilation failed: ")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
def test_a_cache_folder_that_others_can_write_to_is_refused(machine, library, mode):
    compiler(machine, copies(library))
    folder = machine / "cache" / "ordinate"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    message = f"only you may write to the cache folder of C++ kernels; {folder} has mode {mode:o} and owner "
    assert said(machine).startswith(message)
    assert runs(machine) == []


def test_a_cache_folder_of_another_user_is_refused(machine, library, monkeypatch):
    compiler(machine, copies(library))
    assert attempt(machine) is None
    owner = (machine / "cache").stat().st_uid
    monkeypatch.setattr(library_cache, "is_private", lambda path: path.name != "ordinate")
    assert f"has mode 700 and owner {owner}; chmod go-w" in said(machine)


def test_a_cache_folder_that_others_can_replace_is_refused(machine, library):
    compiler(machine, copies(library))
    (machine / "cache").mkdir()
    (machine / "cache").chmod(0o777)
    assert f"{machine / 'cache'} has mode 777" in said(machine)
    # as /tmp has it: others can add folders, but not replace this one
    (machine / "cache").chmod(0o1777)
    assert attempt(machine) is None


def test_a_library_that_others_can_write_to_is_built_again(machine, library):
    compiler(machine, copies(library))
    assert attempt(machine) is None
    (built,) = libraries(machine, "attention")
    assert (built.parent.stat().st_mode & 0o777, built.stat().st_mode & 0o777) == (0o700, 0o700)
    built.chmod(0o777)
    assert attempt(machine) is None
    assert runs(machine).count("attention") == 2


def test_a_user_without_a_home_folder_has_the_other_backends(machine, monkeypatch):
    compiler(machine, "")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    # as for the number of a user that the system does not know
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert said(machine).startswith("compilation failed: Could not determine home directory")


def test_it_can_be_switched_off(machine, monkeypatch):
    compiler(machine, "")
    monkeypatch.setenv(compilers.ENV_VARIABLE, "off")
    assert said(machine) == "the C++ kernels are disabled (ORDINATE_NATIVE)"
    assert runs(machine) == []


def test_it_needs_the_processor(machine, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert said(machine).startswith("the C++ kernels require AVX2")


@pytest.mark.parametrize(
    ("system", "processor"), [("darwin", "arm64"), ("darwin", "x86_64"), ("win32", "AMD64"), ("linux", "riscv64")]
)
def test_it_needs_the_system(machine, system, processor, monkeypatch):
    compiler(machine, "")
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(compilers.platform, "machine", lambda: processor)
    # Windows has neither
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.delattr(os, "sched_getaffinity")
    told = f"the C++ kernels require Linux on x86-64 or ARM; this is {system} on {processor}"
    assert said(machine) == told
    assert command() == 1
    assert runs(machine) == []


def test_on_arm_it_is_used_on_request_only(machine, library, monkeypatch):
    compiler(machine, f"if '-mcpu=native' in sys.argv and '-march=native' not in sys.argv: {copies(library)}")
    monkeypatch.setattr(compilers.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    told = "on ARM the C++ kernels are tested under emulation only; ORDINATE_NATIVE=on enables them"
    assert said(machine) == told
    monkeypatch.setenv(compilers.ENV_VARIABLE, "on")
    assert attempt(machine) is None


@pytest.mark.extended
def test_nothing_is_built_when_it_is_imported():
    program = "import ordinate.attention._attend; from ordinate.ops.native import build; "
    program += "print(build._attempt.cache_info().misses)"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), ORDINATE_NATIVE="on")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"


@pytest.mark.extended
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", compilers.kernel_names())
def test_every_kernel_compiles_for_processors_with_and_without_vector_instructions(name, level):
    compiler = shutil.which("g++")
    if compiler is None or platform.machine() != "x86_64":
        pytest.skip("there is no g++ for x86-64")
    source = Path(build.__file__).with_name(f"{name}.cpp")
    includes = f"-I{source.parent}", f"-I{Path(torch.__file__).parent / 'include'}"
    flags = (flag for flag in compilers.FLAGS if flag != "-shared")
    command = [compiler, *flags, f"-march={level}", *includes, "-fsyntax-only", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
