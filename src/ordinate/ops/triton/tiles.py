"""Tiles, warps and stages of each kernel, by class of device, dtype and channels: fixed, nothing is tuned."""

from typing import Any, NamedTuple

import torch

# Triton compiles apart for numbers and addresses that this divides
ALIGNED = 16
# tiles of keys that a program of the decoding kernel reads
CHUNK_TILES = 4


class Tile(NamedTuple):
    """Configuration of a kernel.

    Args:
        rows: queries per tile.
        columns: keys per tile.
        warps: warps of a program.
        stages: tiles that are loaded ahead.
    """

    rows: int
    columns: int
    warps: int
    stages: int

    @property
    def options(self) -> dict[str, int]:
        """Keyword arguments of a kernel launch: warps and pipeline stages."""
        return {"num_warps": self.warps, "num_stages": self.stages}

    @property
    def chunk(self) -> int:
        """Keys of a program of the decoding kernel."""
        return self.columns * CHUNK_TILES


class Tiles(NamedTuple):
    """Configurations of the kernels of attention.

    Args:
        forward: outputs.
        keys: gradients of keys and values.
        queries: gradients of queries.
        diagonals: gradient of a table; rows equal columns.
        decoding: outputs of a few queries; rows are those of all heads that share keys.
        products: how float32 is multiplied, as `tl.dot` takes it. With `tf32x3` a product is the sum of three of TF32
            on tensor cores: each number is a TF32 number and a remainder, and only the product of both remainders is
            left out. Its errors are those of float32 sums.
    """

    forward: Tile
    keys: Tile
    queries: Tile
    diagonals: Tile
    decoding: Tile
    products: str = "ieee"


# of Triton's interpreter: so small that short sequences have several tiles
INTERPRETED = Tiles(
    Tile(32, 16, 4, 1), Tile(16, 32, 4, 1), Tile(32, 16, 4, 1), Tile(16, 16, 4, 1), Tile(16, 16, 4, 1)
)
SINGLE = {
    64: Tiles(Tile(32, 32, 4, 1), Tile(32, 32, 8, 1), Tile(32, 32, 8, 1), Tile(32, 32, 8, 1), Tile(16, 64, 4, 1)),
    128: Tiles(Tile(32, 32, 8, 1), Tile(16, 32, 8, 1), Tile(32, 16, 8, 1), Tile(32, 32, 8, 1), Tile(16, 32, 4, 1)),
    256: Tiles(Tile(16, 16, 8, 1), Tile(16, 16, 8, 1), Tile(16, 16, 8, 1), Tile(16, 16, 8, 1), Tile(16, 16, 4, 1)),
}
LARGE = {
    64: Tiles(Tile(128, 64, 8, 3), Tile(64, 64, 4, 2), Tile(64, 64, 4, 2), Tile(64, 64, 4, 2), Tile(16, 64, 4, 3)),
    128: Tiles(Tile(128, 64, 8, 3), Tile(32, 128, 8, 2), Tile(64, 64, 8, 2), Tile(64, 64, 8, 2), Tile(16, 64, 4, 3)),
    256: Tiles(Tile(64, 32, 8, 2), Tile(16, 32, 8, 1), Tile(32, 16, 8, 1), Tile(16, 16, 4, 1), Tile(16, 32, 4, 3)),
}
# the fastest on an H200 of those that spill at most 32 bytes in Triton 3.6: causal attention of 8192 tokens, 16 heads
HOPPER = {
    64: Tiles(Tile(64, 128, 4, 3), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3), Tile(16, 64, 4, 3)),
    128: Tiles(Tile(64, 64, 4, 3), Tile(32, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 64, 8, 3), Tile(16, 64, 4, 3)),
    256: LARGE[256],
}
# up to 64 channels the fastest on an H200 of seven for each kernel, or nearly: 16 sequences of 2048 tokens; with more
# channels products of TF32 spill registers in these tiles
HOPPER_SINGLE = SINGLE | {
    64: Tiles(
        Tile(128, 64, 8, 2),
        Tile(32, 32, 4, 2),
        Tile(64, 32, 4, 2),
        Tile(64, 64, 4, 1),
        Tile(16, 64, 4, 1),
        products="tf32x3",
    )
}
SMALL = {
    64: Tiles(Tile(64, 64, 8, 2), Tile(32, 64, 8, 2), Tile(64, 32, 8, 2), Tile(32, 32, 4, 2), Tile(16, 64, 4, 3)),
    128: Tiles(Tile(64, 32, 8, 2), Tile(16, 64, 8, 1), Tile(64, 16, 8, 1), Tile(32, 32, 4, 1), Tile(16, 64, 4, 2)),
    256: Tiles(Tile(32, 16, 8, 1), Tile(16, 16, 8, 1), Tile(16, 16, 8, 1), Tile(16, 16, 4, 1), Tile(16, 32, 4, 2)),
}
# of AMD's MI300: chosen by compilation, as no such GPU has run them. Tiles are not loaded ahead, and kernels for
# wider heads would spill registers
CDNA = {
    64: Tiles(Tile(64, 64, 8, 1), Tile(32, 64, 8, 1), Tile(64, 32, 8, 1), Tile(32, 32, 4, 1), Tile(16, 64, 4, 1)),
    128: Tiles(Tile(64, 32, 8, 1), Tile(16, 64, 8, 1), Tile(64, 16, 8, 1), Tile(32, 32, 4, 1), Tile(16, 64, 4, 1)),
}
CDNA_SINGLE = {
    64: SINGLE[64]._replace(queries=Tile(32, 16, 8, 1)),
    128: SINGLE[128]._replace(diagonals=Tile(16, 16, 8, 1)),
}
# for each class of device and size of a number [bytes], the configurations up to a number of channels
TILES: dict[str, dict[int, dict[int, Tiles]]] = {
    "ampere": {2: SMALL, 4: SINGLE},
    "hopper": {2: HOPPER, 4: HOPPER_SINGLE},
    "blackwell": {
        2: LARGE
        | {
            64: LARGE[64]._replace(queries=Tile(64, 64, 8, 2), diagonals=Tile(64, 64, 8, 2)),
            128: LARGE[128]._replace(forward=Tile(64, 64, 8, 3), keys=Tile(32, 64, 8, 2)),
        },
        4: SINGLE | {256: SINGLE[256]._replace(forward=Tile(16, 16, 4, 1))},
    },
    "cdna": {2: CDNA, 4: CDNA_SINGLE},
}
# in windows of so many tokens there are few tiles of keys to load ahead
NARROW = 256
# the fastest on an H200 of nine for each kernel: T5's nearest 128 keys of 8192
NARROW_TILES = TILES | {
    "hopper": {
        2: HOPPER
        | {
            64: Tiles(
                Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), Tile(64, 32, 4, 2), Tile(64, 64, 4, 3), HOPPER[64].decoding
            )
        },
        4: HOPPER_SINGLE,
    }
}
# by channels, with a bias that is a curve, whose place of each pair takes registers too: chosen by compilation
CURVED = {
    64: LARGE[64]._replace(keys=Tile(64, 64, 8, 2), queries=Tile(64, 32, 4, 2)),
    128: LARGE[128]._replace(forward=Tile(64, 64, 8, 2), keys=Tile(32, 32, 4, 2), queries=Tile(32, 32, 8, 2)),
    256: LARGE[256]._replace(forward=Tile(32, 16, 8, 1)),
}
# heads of more than 128 channels spill 208 to 256 bytes forward, in the smallest tiles
CURVED_SINGLE = SINGLE | {
    64: SINGLE[64]._replace(forward=Tile(32, 32, 8, 1)),
    128: SINGLE[128]._replace(forward=Tile(16, 16, 8, 1), queries=Tile(16, 32, 8, 1)),
}
CURVED_TILES: dict[str, dict[int, dict[int, Tiles]]] = {
    "ampere": {
        2: {
            64: SMALL[64]._replace(queries=Tile(32, 32, 8, 2)),
            128: SMALL[128]._replace(queries=Tile(32, 16, 8, 1)),
            256: SMALL[256],
        },
        4: CURVED_SINGLE,
    },
    # up to 64 channels the fastest on an H200 of seven for each kernel: 4 sequences of 4096 tokens and 16 heads
    "hopper": {
        2: CURVED | {64: CURVED[64]._replace(forward=Tile(64, 64, 4, 2), keys=Tile(64, 64, 4, 2))},
        4: CURVED_SINGLE,
    },
    # Triton 3.6 does not compile gradients of larger tiles of queries
    "blackwell": {
        2: CURVED | {64: CURVED[64]._replace(forward=Tile(64, 64, 8, 2), queries=Tile(32, 32, 8, 2))},
        4: CURVED_SINGLE,
    },
    "cdna": {
        2: {
            64: CDNA[64]._replace(forward=Tile(64, 32, 8, 1), queries=Tile(32, 16, 8, 1)),
            128: CDNA[128]._replace(queries=Tile(32, 16, 8, 1)),
        },
        4: {
            64: CDNA_SINGLE[64]._replace(keys=Tile(16, 32, 8, 1)),
            128: CDNA_SINGLE[128]._replace(forward=Tile(16, 32, 8, 1)),
        },
    },
}


def device_class(device: torch.device) -> str:
    """Return the class of a device, by which its configurations are chosen."""
    if device.type == "cpu":
        return "interpreter"
    if torch.version.hip is not None:
        return "cdna" if torch.cuda.get_device_properties(device).gcnArchName.startswith("gfx942") else "amd"
    major, _ = torch.cuda.get_device_capability(device)
    # Blackwell's RTX GPUs (12) have the instructions of Ampere, and less shared memory than the tiles of a B200 take
    return {9: "hopper", 10: "blackwell", 11: "blackwell"}.get(major, "ampere")


def most_channels(given: dict[str, dict[int, dict[int, Any]]], kind: str, dtype: torch.dtype) -> int:
    """Return how many channels a head may have at most.

    Args:
        given: configurations by class of device, size of a number [bytes] and channels.
        kind: class of device, one with configurations.
        dtype: dtype of queries, keys and values.
    """
    return max(given[kind][dtype.itemsize])


def tiles(kind: str, dtype: torch.dtype, channels: int, *, curved: bool = False, window: int = 0) -> Tiles:
    """Return the configurations for a class of device.

    Args:
        kind: class of device.
        dtype: dtype of queries, keys and values.
        channels: channels of the wider of keys and values, a power of two.
        curved: whether the bias is a curve.
        window: the sliding window [tokens]; 0: none.
    """
    if kind == "interpreter":
        return INTERPRETED
    given = CURVED_TILES if curved else NARROW_TILES if 0 < window <= NARROW else TILES
    sizes = given[kind][dtype.itemsize]
    return next(found for most, found in sizes.items() if channels <= most)
