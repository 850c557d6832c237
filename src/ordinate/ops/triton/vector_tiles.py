"""Tiles, warps and stages of the kernels for vectors by offset, by class of device, dtype and channels: fixed."""

from typing import NamedTuple

import torch

from ordinate.ops.triton.tiles import Tile


class VectorTiles(NamedTuple):
    """Configurations of the kernels of attention with vectors by offset; all tiles are square.

    Args:
        forward: outputs.
        keys: gradients of keys and values.
        queries: gradients of queries.
        sums: gradients of the vectors. Their tiles are as large as those of `queries`, whose kernel sums what lies
            beyond the vectors' ends: both begin there at the same tile.
    """

    forward: Tile
    keys: Tile
    queries: Tile
    sums: Tile


def _square(*given: tuple[int, int, int]) -> VectorTiles:
    """Return configurations from size, warps and stages of each kernel."""
    return VectorTiles(*(Tile(size, size, warps, stages) for size, warps, stages in given))


def _not_ahead(given: dict[int, VectorTiles]) -> dict[int, VectorTiles]:
    """Return configurations that load no tiles ahead."""
    return {most: VectorTiles(*(tile._replace(stages=1) for tile in found)) for most, found in given.items()}


# of Triton's interpreter: so small that short sequences have several tiles
INTERPRETED = _square(*4 * [(16, 4, 1)])
# float32 products of wider heads would spill registers
SINGLE = {64: _square((16, 4, 2), (16, 8, 1), (16, 4, 2), (16, 8, 1))}
HALF = {
    64: _square((32, 4, 2), (32, 4, 2), (32, 8, 2), (32, 8, 1)),
    128: _square((32, 8, 2), (32, 8, 2), (16, 4, 2), (16, 8, 1)),
    256: _square((16, 8, 1), (16, 8, 2), (16, 8, 2), (16, 8, 1)),
}
# on an H200 the instructions of larger tiles gain more than spilled registers cost; the fastest of 15 configurations
# for Shaw, Transformer-XL and DeBERTa together: 4 sequences of 4096 tokens and 16 heads
HOPPER = HALF | {64: _square((64, 4, 1), (64, 4, 1), (64, 4, 1), (64, 4, 2))}
# for each class of device and size of a number [bytes], the configurations up to a number of channels
VECTOR_TILES: dict[str, dict[int, dict[int, VectorTiles]]] = {
    "ampere": {2: HALF, 4: SINGLE},
    "hopper": {2: HOPPER, 4: SINGLE},
    "blackwell": {
        2: HALF
        | {
            128: HALF[128]._replace(forward=Tile(32, 32, 8, 3)),
            256: HALF[256]._replace(keys=Tile(16, 16, 8, 3)),
        },
        4: SINGLE,
    },
    "cdna": {
        2: _not_ahead(
            {
                64: HALF[64]._replace(queries=Tile(16, 16, 4, 1), sums=Tile(16, 16, 8, 1)),
                128: HALF[128]._replace(forward=Tile(16, 16, 8, 1), keys=Tile(16, 16, 8, 1)),
            }
        ),
        4: _not_ahead(SINGLE),
    },
}
# in windows of so many tokens larger tiles have many hidden pairs
NARROW = 64
# the fastest on an H200 of six for each kernel: the nearest 16 keys of 8192, as Shaw's
NARROW_TILES = VECTOR_TILES | {
    "hopper": {2: HOPPER | {64: _square((32, 4, 1), (32, 4, 2), (32, 4, 1), (32, 4, 3))}, 4: SINGLE}
}
# beside vectors for values, registers hold no wider heads
MAX_VALUE_CHANNELS = 128


def vector_tiles(kind: str, dtype: torch.dtype, channels: int, window: int = 0) -> VectorTiles:
    """Return the configurations for a class of device, as `ordinate.ops.triton.tiles.tiles` does.

    Args:
        kind: class of device.
        dtype: dtype of queries, keys and values.
        channels: channels of the wider of keys and values, a power of two.
        window: the sliding window [tokens]; 0: none.
    """
    if kind == "interpreter":
        return INTERPRETED
    sizes = (NARROW_TILES if 0 < window <= NARROW else VECTOR_TILES)[kind][dtype.itemsize]
    return next(found for most, found in sizes.items() if channels <= most)
