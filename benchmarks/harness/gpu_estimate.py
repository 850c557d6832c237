"""Least times of the Triton kernels by a roofline: counted operations and bytes over published rates of a GPU.

    least time = max(products / rate of products, exponentials / rate of exponentials, bytes / rate of memory)

An estimate, not a measurement: with its tiles a kernel cannot take less at these rates, and a real one takes more.
Counted are the tiles that it computes, with the pairs that a mask hides inside of them and the rows that pad them,
and each byte of inputs and outputs once. Not counted are all other instructions, caches that are too small, and
launches.

The call is that of `benchmarks.gpu_code` at another length: causal attention of one sequence, heads in pairs that
share keys, a T5 bias that is constant from a distance on.
Source: NVIDIA's data sheets of A100 80GB SXM, H200 SXM and HGX B200: dense bf16 and fp32 products, memory. A
multiprocessor computes 16 exponentials a clock (CUDA C++ programming guide, arithmetic instructions), beside 128
flops of fp32 (A100) or 256.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

TOKENS, HEADS, KEY_HEADS, REACH = 8192, 16, 8, 128
# tiles of keys that a program of the decoding kernel reads, as in ordinate.ops.triton.tiles
CHUNK_TILES = 4
SIZES = {"bfloat16": 2, "float32": 4}


class Rates(NamedTuple):
    """Published rates of a GPU.

    Args:
        name: its name.
        bfloat16: products of bfloat16 by tensor cores [flops per second].
        float32: products of float32, not rounded to TF32.
        exponentials: exponentials per second.
        memory: bytes per second.
    """

    name: str
    bfloat16: float
    float32: float
    exponentials: float
    memory: float


RATES = {
    "sm_80": Rates("A100", 312e12, 19.5e12, 19.5e12 / 8, 2.039e12),
    "sm_90": Rates("H200", 989e12, 67e12, 67e12 / 16, 4.8e12),
    "sm_100": Rates("B200", 2250e12, 75e12, 75e12 / 16, 8e12),
}


class Work(NamedTuple):
    """What a kernel does: `flops` of products, `exponentials`, and `bytes` of inputs and outputs."""

    flops: float
    exponentials: float
    bytes: float


class Estimate(NamedTuple):
    """The least time [seconds], and by what it is bound: products, exponentials or memory."""

    seconds: float
    bound: str


def estimate(architecture: str, row: Mapping[str, Any]) -> Estimate:
    """Return the least time of a compiled kernel, a row of the results of `benchmarks.gpu_code`."""
    work, rates = WORK[row["kernel"]](row), RATES[architecture]
    times = {
        "products": work.flops / _products(rates, row),
        "exponentials": work.exponentials / rates.exponentials,
        "memory": work.bytes / rates.memory,
    }
    bound = max(times, key=lambda name: times[name])
    return Estimate(times[bound], bound)


def _products(rates: Rates, row: Mapping[str, Any]) -> float:
    if row["type"] == "float32" and row["products"]:
        # three of TF32, whose rate is half of that of bfloat16
        return rates.bfloat16 / 6
    return getattr(rates, row["type"])


def causal_tiles(rows: int, columns: int) -> int:
    """Number of tiles that hold a visible pair: up to the last query of each tile of queries."""
    return sum(-(-min(begin + rows, TOKENS) // columns) for begin in range(0, TOKENS, rows))


def _vectors(row: Mapping[str, Any], heads: int) -> float:
    """Bytes of as many vectors for each token."""
    return heads * TOKENS * row["channels"] * SIZES[row["type"]]


def _tiled(row: Mapping[str, Any], products: int, tiles: int, queries: int, keys: int, numbers: int) -> Work:
    """Work of tiles: so many products each; and memory: vectors of queries and keys, float32 numbers of queries."""
    pairs = HEADS * tiles * row["rows"] * row["columns"]
    memory = _vectors(row, queries * HEADS + keys * KEY_HEADS) + 4 * numbers * HEADS * TOKENS
    return Work(2 * products * pairs * row["channels"], pairs, memory)


def _forward(row: Mapping[str, Any]) -> Work:
    """Scores and outputs; q, k, v, outputs, log-sum-exp."""
    return _tiled(row, 2, causal_tiles(row["rows"], row["columns"]), 2, 2, 1)


def _keys(row: Mapping[str, Any]) -> Work:
    """Scores, both gradients of keys and values, that of the weights; q, dO, k, v, dk, dv, log-sum-exp, delta."""
    return _tiled(row, 4, causal_tiles(row["rows"], row["columns"]), 2, 4, 2)


def _queries(row: Mapping[str, Any]) -> Work:
    """Scores, gradient of the weights and of the queries; q, dO, dq, k, v, log-sum-exp, delta."""
    return _tiled(row, 3, causal_tiles(row["rows"], row["columns"]), 3, 2, 2)


def _diagonals(row: Mapping[str, Any]) -> Work:
    """Scores and gradients of the weights in tiles that the table crosses; q, dO, k, v, log-sum-exp, delta."""
    size = row["rows"]
    blocks = -(-TOKENS // size)
    tiles = sum(blocks - apart for apart in range(-(-REACH // size) + 1))
    return _tiled(row, 2, tiles, 2, 2, 2)


def _parts(row: Mapping[str, Any]) -> float:
    """Bytes of the outputs of all chunks, and of their log-sum-exp."""
    keys = row["columns"] * CHUNK_TILES
    return -(-TOKENS // keys) * HEADS * (row["channels"] + 1) * 4


def _chunks(row: Mapping[str, Any]) -> Work:
    """Products of a padded tile of rows with all keys and values, which are read once."""
    pairs = KEY_HEADS * row["rows"] * TOKENS
    return Work(4 * pairs * row["channels"], pairs, _vectors(row, 2 * KEY_HEADS) + _parts(row))


def _join(row: Mapping[str, Any]) -> Work:
    """One exponential for each chunk, whose outputs are read."""
    return Work(0, _parts(row) / 4 / (row["channels"] + 1), _parts(row))


def _rotation(pairs: float) -> Callable[[Mapping[str, Any]], Work]:
    """All channels read and written, float32 cosines and sines of a share of pairs read once."""
    return lambda row: Work(0, 0, 2 * _vectors(row, HEADS) + 8 * TOKENS * pairs * row["channels"])


WORK: dict[str, Callable[[Mapping[str, Any]], Work]] = {
    "attention_forward": _forward,
    "attention_backward_keys": _keys,
    "attention_backward_queries": _queries,
    "add_tiles": _diagonals,
    "attend_chunk": _chunks,
    "join_chunks": _join,
    "rotate_half": _rotation(1 / 2),
    "rotate_interleaved": _rotation(1 / 2),
    "rotate_partly": _rotation(1 / 4),
}
