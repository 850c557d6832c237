"""Runs the jobs of a script, each in a process of its own, many at a time, and keeps what has been found so far."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from ordinate.core.atomic_files import write_text

Rows = list[dict[str, Any]]


def run(script: str, jobs: Sequence[Sequence[str]], options: Sequence[str], name: str) -> Rows:
    """Compute each job, given in words, by `SCRIPT OPTIONS --job WORDS`, whose last line is its rows as JSON.

    An error of the device ends with its process. Rows have a `reason`, why they are wrong, or None.

    Args:
        script: path of the script.
        jobs: words of each job.
        options: those of the script that all jobs share.
        name: name of the file of the rows in the folder in ORDINATE_BENCH_RESULTS.

    Raises:
        SystemExit: SIGINT, which the jobs get too; rows of those that are done have been saved.
    """
    # processes enough: each would start a team of compilers of its own
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    pool, found, count = ThreadPoolExecutor(os.cpu_count() or 1), [], 0
    try:
        for done in as_completed([pool.submit(in_process, script, job, options) for job in jobs]):
            found += done.result()
            count += 1
            save(found, name)
    except KeyboardInterrupt:
        raise SystemExit(f"stopped after {count} of {len(jobs)} jobs") from None
    finally:
        # at the limit of time jobs that have not begun are left out
        pool.shutdown(cancel_futures=True)
    return found


def in_process(script: str, job: Sequence[str], options: Sequence[str]) -> Rows:
    """Compute a job in a new process; one that ends early is a row, with its exit status."""
    done = subprocess.run([sys.executable, script, *options, "--job", *job], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        status, name = done.returncode, " ".join(job)
        return [{"job": name, "reason": f"its process ended with exit status {status}", "status": status}]
    return json.loads(done.stdout.splitlines()[-1])


def save(found: Rows, name: str) -> None:
    """Save what has been found so far: a machine that is lent for a while may be gone before the last job."""
    folder = os.environ.get("ORDINATE_BENCH_RESULTS")
    if folder:
        write_text(Path(folder) / f"{name}.json", json.dumps(found, indent=1))


def told(found: Rows) -> int:
    """Print the rows that are wrong, and how many there are; returns the number of jobs whose process ended early."""
    wrong = [row for row in found if row["reason"] is not None]
    for row in wrong:
        print(json.dumps(row))
    print(f"{len(found)} forms, {len(wrong)} wrong")
    return sum("status" in row for row in found)
