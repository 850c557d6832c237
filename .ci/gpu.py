"""Everything that needs a GPU, in parts by value: ./dev gpu [--out FOLDER] [--limit MINUTES] [PART ...].

Each part is a process with a time limit; what it prints and measures is kept when it ends. A part that is done is
not repeated while code, device and versions are the same, also after a signal, which stops the part that runs.
`--dry-run` runs all parts, tiny, on the CPU, with results of its own: in the folder `rehearsal`. On a machine without
a network: `./dev --here gpu`, with the packages of that Python (torch, and what pyproject.toml names).
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# pytest-benchmark warns where it finds xdist, and warnings are errors
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:benchmark"]
SUITES = ["tests/contracts/test_schemes.py", "tests/contracts/test_mixers.py", "tests/models/test_fixed_cache.py"]


class Part(NamedTuple):
    """One process.

    Args:
        name: name on the command line and of its files.
        minutes: its time limit.
        command: arguments of Python.
        dry: the same, tiny, on a CPU.
    """

    name: str
    minutes: float
    command: list[str]
    dry: list[str]


def bench(name: str, *more: str) -> list[str]:
    """Arguments that run a benchmark and save its result."""
    return ["-m", "benchmarks", name, "--save", *more]


def parts() -> list[Part]:
    """All parts, the most valuable first."""
    attention = [*PYTEST, "tests/attention/test_device.py"]
    proofs, models = [".ci/gpu_proofs.py", "--device"], [".ci/gpu_models.py", "--device"]
    gpu, dry = ["--device", "cuda"], ["--quick", "--device", "cpu"]
    study, tiny = (
        # a study is not resumed with other code
        ["-m", "ordinate", "study", "--out", "{out}/study-{code}", "--preset"],
        ["--steps", "2", "--schemes", "rope"],
    )
    tiny += ["--eval-samples", "2", "--shuffle-samples", "2", "--text", "docs", "--generated-texts", "0"]
    return [
        Part("about", 3, [".ci/gpu_about.py"], [".ci/gpu_about.py"]),
        Part("proofs", 10, [*proofs, "cuda"], [*proofs, "cpu", "--quick"]),
        Part("backends", 15, [*attention, *gpu], [*attention, "-k", "made_on_the_device"]),
        Part("models", 10, [*models, "cuda"], [*models, "cpu", "--quick"]),
        Part("attention", 15, bench("attention", *gpu), bench("attention", *dry)),
        Part("kernels", 6, bench("kernels", *gpu), bench("kernels", "--device", "cpu")),
        Part("contracts", 20, [*PYTEST, *SUITES, *gpu], [*PYTEST, *SUITES, "-k", "promise and rope"]),
        Part("decoder", 10, bench("decoder", *gpu), bench("decoder", *dry)),
        Part("mixers", 20, bench("mixers", *gpu), bench("mixers", *dry)),
        Part("study", 20, [*study, "gpu-10min"], [*study, "quick", *tiny]),
    ]


def main() -> int:
    """Run the parts that are not done, within the limits; returns the number of those that failed."""
    parser = argparse.ArgumentParser(prog="./dev gpu", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help=f"which: {', '.join(part.name for part in parts())}")
    parser.add_argument("--out", type=Path, default=ROOT / "gpu-results", help="folder of the results")
    parser.add_argument("--limit", type=float, default=float("inf"), help="minutes for all parts together")
    parser.add_argument("--dry-run", action="store_true", help="all parts, tiny, on the CPU")
    chosen = parser.parse_args()
    known = {part.name: part for part in parts()}
    for name in chosen.names:
        if name not in known:
            parser.error(f"no part is named {name!r}; there are: {', '.join(known)}")
    # what was measured is not replaced by what a rehearsal prints
    out = (chosen.out / "rehearsal" if chosen.dry_run else chosen.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    begin, failed = time.monotonic(), 0
    for part in [known[name] for name in chosen.names] or parts():
        left = 60 * chosen.limit - (time.monotonic() - begin)
        failed += not done_or_run(part, out, left, dry=chosen.dry_run)
    return failed


def done_or_run(part: Part, out: Path, left: float, *, dry: bool) -> bool:
    """Run a part unless it is done already or no time is left; returns whether it is done."""
    state = out / f"{part.name}.json"
    facts = {"code": digest(), "dry": dry, "device": device(dry), "versions": versions()}
    before = json.loads(state.read_text(encoding="utf-8")) if state.is_file() else {}
    if before.get("facts") == facts and before.get("code") == 0:
        print(f"{part.name}: done before", flush=True)
        return True
    if left <= 0:
        print(f"{part.name}: no time left", flush=True)
        return False
    print(f"{part.name}: at most {min(60 * part.minutes, left) / 60:.3g} minutes", flush=True)
    row = run(part, out, min(60 * part.minutes, left), dry=dry)
    text = json.dumps({"facts": facts, **row}, indent=1)
    beside = state.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    # an atomic rename: a machine that is taken back here leaves a complete file
    beside.replace(state)
    print(
        f"{part.name}: {row['end']} after {row['seconds']:.0f} s: {last_line(out / f'{part.name}.log')}", flush=True
    )
    return row["code"] == 0


def run(part: Part, out: Path, seconds: float, *, dry: bool) -> dict[str, Any]:
    """Run a part with a limit; returns how it ended. What it prints goes to a file while it runs."""
    command = [word.format(out=out, code=digest()) for word in (part.dry if dry else part.command)]
    began, clock, log = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic(), out / f"{part.name}.log"
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "ORDINATE_BENCH_RESULTS": str(out)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    if dry:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    with log.open("wb") as file:
        # a session of its own, so that all its processes can be ended together
        made = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            code, end = made.wait(seconds), "failed"
        except subprocess.TimeoutExpired:
            code, end = stop(made), "stopped at its limit"
        except BaseException:
            # a signal: the session of the part does not get it
            stop(made)
            raise
    end = "done" if code == 0 else f"{end} (exit status {code})"
    return {"code": code, "end": end, "began": began, "seconds": time.monotonic() - clock, "command": command}


def stop(process: subprocess.Popen[bytes]) -> int:
    """End a process and its children: first by SIGINT, so that what it has measured is saved."""
    for number, patience in ((signal.SIGINT, 20), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            return process.wait(patience) or 1
        except subprocess.TimeoutExpired:
            continue
    return 1


def interrupted(number: int, frame: FrameType | None) -> None:
    """Handle a signal: exit with a message that says how to go on."""
    sys.exit(
        f"./dev gpu was stopped by {signal.Signals(number).name}; the same command runs the parts that are not done"
    )


def last_line(log: Path) -> str:
    """Return the last line with a letter or digit that a part has printed."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip()[:160] for line in reversed(lines) if any(map(str.isalnum, line))), "it printed nothing")


def digest() -> str:
    """Digest of the code that the parts run: the library, the benchmarks, the tests and the scripts."""
    files = sorted(path for name in ("src", "benchmarks", ".ci", "tests") for path in (ROOT / name).rglob("*.py"))
    files += [ROOT / "dev", ROOT / "pyproject.toml"]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def versions() -> dict[str, str | None]:
    """Versions of Python, PyTorch and Triton; None: it is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("torch", "triton"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def device(dry: bool) -> str:
    """Name of the GPU; that of a rehearsal without one."""
    if dry:
        return "rehearsal"
    import torch

    if not torch.cuda.is_available():
        sys.exit("./dev gpu needs a GPU that torch.cuda finds; got none; add --dry-run to rehearse on the CPU")
    return torch.cuda.get_device_name()


if __name__ == "__main__":
    sys.exit(main())
