import os
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

from ordinate import Geometry, explain
from ordinate.ops.native import build
from ordinate.schemes import Alibi

LONG = Geometry.causal(300)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with an empty cache folder, where only the compilers of a test are found."""
    monkeypatch.delenv(build.ENV_VARIABLE)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    if build._unfit() is not None:
        pytest.skip(build._unfit())
    return tmp_path


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library that exports the required functions, with no-op bodies."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "a.cpp").write_text('extern "C" const char* ordinate_attention() { return "x"; }\n')
    subprocess.run([compiler, "-shared", "-fPIC", folder / "a.cpp", "-o", folder / "a.so"], check=True)
    return folder / "a.so"


def compiler(machine, python):
    """Put a compiler in place that runs these lines; `out` is where its result belongs, `runs` counts."""
    program = "\n".join(
        [
            f"#!{sys.executable} -S",
            "import sys, shutil, time, pathlib",
            "out = sys.argv[sys.argv.index('-o') + 1]",
            f"with open({str(machine / 'runs')!r}, 'a') as runs: runs.write('x')",
            textwrap.dedent(python),
        ]
    )
    path = machine / "bin" / "c++"
    path.write_text(program)
    path.chmod(0o755)


def runs(machine):
    return len((machine / "runs").read_text()) if (machine / "runs").exists() else 0


def attempt(machine):
    """As a new process does it."""
    build._attempt.cache_clear()
    try:
        return build.unavailable_reason("attention")
    finally:
        build._attempt.cache_clear()


def test_it_is_built_once_with_a_notice(machine, library, capfd):
    compiler(machine, f"shutil.copy({str(library)!r}, out)")
    assert attempt(machine) is None
    assert "compiling the C++ kernel attention (once" in capfd.readouterr().err
    assert attempt(machine) is None
    assert capfd.readouterr().err == ""
    assert runs(machine) == 1
    (built,) = (machine / "cache" / "ordinate").iterdir()
    assert built.name.startswith("attention-")


@pytest.mark.parametrize("damage", [b"", b"\x7fELF"])
def test_a_library_that_was_cut_short_is_built_again(machine, library, damage):
    compiler(machine, f"shutil.copy({str(library)!r}, out)")
    assert attempt(machine) is None
    (built,) = (machine / "cache" / "ordinate").iterdir()
    # this process still reads the old file
    built.unlink()
    built.write_bytes(damage)
    assert attempt(machine) is None
    assert runs(machine) == 2


@pytest.mark.parametrize("change", ["torch", "flags", "processor"])
def test_what_was_built_for_something_else_is_not_used(machine, library, change, monkeypatch):
    compiler(machine, f"shutil.copy({str(library)!r}, out)")
    assert attempt(machine) is None
    if change == "torch":
        monkeypatch.setattr(torch, "__version__", "9.9")
    elif change == "flags":
        monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    else:
        monkeypatch.setattr(build, "_processor", lambda: "flags: one more")
    assert attempt(machine) is None
    assert runs(machine) == 2


@pytest.mark.extended
def test_processes_that_build_at_once_do_not_disturb_each_other(machine, library):
    slow = f"content = pathlib.Path({str(library)!r}).read_bytes()\nwith open(out, 'wb') as file:\n"
    slow += "    file.write(content[:100]); file.flush(); time.sleep(0.5); file.write(content[100:])"
    compiler(machine, slow)
    program = "from ordinate.ops.native import build; assert build.unavailable_reason('attention') is None"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    both = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(list((machine / "cache" / "ordinate").iterdir())) == 1


def said(machine):
    q = torch.zeros(1, 4, 300, 8)
    build._attempt.cache_clear()
    told = explain(q, q, q, Alibi(heads=4).at(LONG))
    build._attempt.cache_clear()
    assert told.backend == "offset_bias"
    return told.unsupported["native"]


def test_without_a_compiler_another_backend_takes_the_call(machine):
    assert said(machine) == "no C++ compiler was found (c++, g++ or clang++)"


def test_a_failing_compiler_is_reported_and_another_backend_takes_the_call(machine):
    compiler(machine, "print('a.cpp:1: error: no such header', file=sys.stderr); sys.exit(1)")
    assert said(machine) == "compilation failed: a.cpp:1: error: no such header"
    assert list((machine / "cache" / "ordinate").iterdir()) == []


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
    compiler(machine, f"shutil.copy({str(library)!r}, out)")
    folder = machine / "cache" / "ordinate"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    message = f"only you may write to the cache folder of C++ kernels; {folder} has mode {mode:o} and owner "
    assert said(machine).startswith(message)
    assert runs(machine) == 0


def test_a_cache_folder_of_another_user_is_refused(machine, library, monkeypatch):
    compiler(machine, f"shutil.copy({str(library)!r}, out)")
    assert attempt(machine) is None
    owner = (machine / "cache").stat().st_uid
    monkeypatch.setattr(build, "_is_private", lambda path: path.name != "ordinate")
    assert f"has mode 700 and owner {owner}; chmod go-w" in said(machine)


def test_a_cache_folder_that_others_can_replace_is_refused(machine, library):
    compiler(machine, f"shutil.copy({str(library)!r}, out)")
    (machine / "cache").mkdir()
    (machine / "cache").chmod(0o777)
    assert f"{machine / 'cache'} has mode 777" in said(machine)
    # as /tmp has it: others can add folders, but not replace this one
    (machine / "cache").chmod(0o1777)
    assert attempt(machine) is None


def test_a_library_that_others_can_write_to_is_built_again(machine, library):
    compiler(machine, f"shutil.copy({str(library)!r}, out)")
    assert attempt(machine) is None
    (built,) = (machine / "cache" / "ordinate").iterdir()
    assert (built.parent.stat().st_mode & 0o777, built.stat().st_mode & 0o777) == (0o700, 0o700)
    built.chmod(0o777)
    assert attempt(machine) is None
    assert runs(machine) == 2


def test_a_user_without_a_home_folder_has_the_other_backends(machine, monkeypatch):
    compiler(machine, "")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    # as for the number of a user that the system does not know
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert said(machine).startswith("compilation failed: Could not determine home directory")


def test_it_can_be_switched_off(machine, monkeypatch):
    compiler(machine, "")
    monkeypatch.setenv(build.ENV_VARIABLE, "off")
    assert said(machine) == "the C++ kernels are disabled (ORDINATE_NATIVE)"
    assert runs(machine) == 0


@pytest.mark.parametrize(("capability", "says"), [("DEFAULT", "the C++ kernels require AVX2")])
def test_it_needs_the_processor(machine, capability, says, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert said(machine).startswith(says)


def test_it_needs_the_system(machine, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert said(machine).startswith("the C++ kernels require Linux on x86-64; this is darwin")


def test_nothing_is_built_when_it_is_imported():
    program = "import ordinate.attention._attend; from ordinate.ops.native import build; "
    program += "print(build._attempt.cache_info().misses)"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), ORDINATE_NATIVE="on")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"
