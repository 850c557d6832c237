"""Runs programs and tests in a process of their own, in which Triton interprets kernels on the CPU."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
installed = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")


def interpret(*arguments):
    """Run Python with these arguments."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


def interpret_tests(file, *options):
    """Run the tests of a file in this folder."""
    quiet = "-p", "no:cacheprovider", "-q", "--show-capture=no", "-W", "ignore::RuntimeWarning"
    interpret("-m", "pytest", *quiet, *options, str(Path(__file__).with_name(file)))
