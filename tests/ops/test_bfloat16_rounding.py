import os
import subprocess
import sys

import pytest
import torch

from ordinate.ops.bfloat16_rounding import rounded, rounded_number

# halves between two bfloat16 numbers, small and large ones, and zeros of both signs
NUMBERS = torch.cat(
    [
        torch.arange(-70_000.0, 70_000.0),
        torch.randn(10_000, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(-30.0, 30.0, 0.006),
        torch.tensor([0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 2.0**-126, 3e38]),
    ]
)
PROGRAM = """
import torch
from ordinate.ops.bfloat16_rounding import rounded

x = torch.arange(100_000.0) / 7
for x in (x, x[:30_000]):
    assert torch.compile(lambda x: rounded(x * 3) + 1)(x).equal((x * 3).bfloat16().float() + 1)
"""


def test_numbers_are_rounded_as_pytorch_converts_them():
    assert rounded(NUMBERS).equal(NUMBERS.bfloat16().float())
    assert rounded(NUMBERS[::2][:, None].T).equal(NUMBERS[::2][:, None].T.bfloat16().float())


def test_one_number_is_rounded_likewise():
    few = NUMBERS[::37].tolist()
    assert [rounded_number(x) for x in few] == torch.tensor(few).bfloat16().tolist()


@pytest.mark.extended
def test_compiled_code_rounds_too():
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
