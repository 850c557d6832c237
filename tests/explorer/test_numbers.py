"""The numbers of the page beside those of the library, by node."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = [pytest.mark.extended, pytest.mark.skipif(shutil.which("node") is None, reason="needs node")]


@pytest.mark.parametrize("name", ["golden", "kinds", "page"])
def test_the_modules_compute_what_the_library_does(golden, name):
    environment = {**os.environ, "GOLDEN": str(golden)}
    command = ["node", "--test", str(HERE / "js" / f"{name}.test.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
