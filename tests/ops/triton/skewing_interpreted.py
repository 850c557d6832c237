"""The skewing of tiles on a CPU, in Triton's interpreter: run by test_skewing.py in a process of its own.

TRITON_INTERPRET=1 python -m pytest -W ignore::RuntimeWarning tests/ops/triton/skewing_interpreted.py
"""

import importlib

import pytest
import torch
import triton.language as tl

from ordinate.ops.triton import skewing
from ordinate.ops.triton.kernel import kernel


@kernel
def gather(first, second, found, SIZE: tl.constexpr, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    place = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tiles = tl.load(first + place), tl.load(second + place)
    tl.store(found + place, skewing.gathered(tiles[0], tiles[1], AXIS, ROWS, COLUMNS))


@kernel
def rotate(first, second, found, SIZE: tl.constexpr, AXIS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    place = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tiles = tl.load(first + place), tl.load(second + place)
    tl.store(found + place, skewing.rotated(tiles[0], tiles[1], AXIS, ROWS, COLUMNS))


@pytest.mark.parametrize("way", [gather, rotate], ids=["gathered", "rotated"])
@pytest.mark.parametrize("size", [16, 32, 64])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, -1), (-1, 1)])
def test_each_number_is_that_of_its_diagonal(size, axis, rows, columns, way):
    assert importlib.import_module("triton").knobs.runtime.interpret
    first, second = torch.arange(2.0 * size * size).reshape(2, size, size)
    found = torch.empty(size, size)
    way[(1,)](first, second, found, size, axis, rows, columns)
    a, b = torch.arange(size)[:, None], torch.arange(size)
    place = rows * a + columns * b + (size if rows + columns == 0 else 0)
    assert torch.equal(found, torch.cat([first, second], axis).gather(axis, place))
