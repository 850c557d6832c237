"""The kernels compiled for GPUs that are not there."""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from ordinate.ops.triton import tiles, vector_tiles

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, sys, triton
from benchmarks import gpu_code
rows = gpu_code.measured(sys.argv[1], [int(x) for x in sys.argv[2:]])
print(json.dumps([triton.__version__, len(rows), [row for row in rows if row["faults"]]]))
"""

LISTED = """
import json, sys
from benchmarks import gpu_code
found = []
gpu_code.visit(sys.argv[1], [int(x) for x in sys.argv[2:]], lambda about, compile: found.append(about))
print(json.dumps([x for x in found if x["kernel"].rpartition(": ")[2] not in gpu_code.SMALL]))
"""

# the scan over chunks of 64 channels: what its kernel does, in order, forward and backward
ORDER = """
import json, re, sys
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget
from benchmarks.gpu_code.compiler import Device
from ordinate.ops.triton import kernel

path, orders = Path(sys.argv[1]), []
kernels = {"__name__": "ordinate.ops.triton.chunk_scan_kernels"}
exec(compile(path.read_text(), path, "exec"), kernels)

def launch(function, grid, arguments, options):
    made = function.run(*arguments, grid=grid, warmup=True, **kernel.OPTIONS, **options)
    orders.append(" ".join(re.findall(r"tt[.](?:load|store|dot)|barrier|tf32", made.asm["ttgir"])))

kernels["launch"] = launch
triton.runtime.driver.set_active(Device(0, GPUTarget("cuda", 90, 32)))
start = torch.zeros(1, 2, 64, 64)
for back in (False, True):
    kernels["scan"](start, start[:, :, None], start[:, :, None], back)
print(json.dumps([triton.__version__, orders]))
"""

# the join of near and far keys: what its kernel does, in order
JOIN_ORDER = """
import json, re, sys
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget
from benchmarks.gpu_code.compiler import Device
from ordinate.ops.triton import attention, kernel
from ordinate.ops.triton.bands import Vectors

path, orders = Path(sys.argv[1]), []
kernels = {"__name__": "ordinate.ops.triton.near_far"}
exec(compile(path.read_text(), path, "exec"), kernels)

def launch(function, grid, arguments, options):
    made = function.run(*arguments, grid=grid, warmup=True, **kernel.OPTIONS, **options)
    orders.append(" ".join(re.findall(r"tt[.](?:load|store)|barrier", made.asm["ttgir"])))

kernels["launch"] = launch
triton.runtime.driver.set_active(Device(0, GPUTarget("cuda", 90, 32)))
q, lse, table = torch.zeros(1, 2, 256, 64, dtype=torch.bfloat16), torch.zeros(1, 2, 256), torch.zeros(2, 129)
given = attention.Problem(q, q, q, table, *4 * [None], True, 0, 0, 128, True, 0.1, 0.0)
farther = q[:, :, 128:].contiguous(), lse[:, :, 128:].contiguous()
kernels["join"](attention.describe(given), Vectors(*4 * [None]), farther, (q.clone(), lse))
print(json.dumps([triton.__version__, orders]))
"""

# of all kernels, for each GPU and size of a head: Hopper has others for near keys
CONFIGURATIONS = {
    (architecture, channels): count + (9 if (architecture, channels) == ("sm_90", "64") else 0)
    for architecture in ("sm_80", "sm_90", "sm_100", "gfx942")
    for channels, count in (("64", 80), ("128", 66), ("256", 61))
}
# WKV, whose channels are not those of a head
OF_ANY_WIDTH = 2
# sizes of heads that have configurations
CHANNELS = ["64", "128", "256"]
# main kernels of Hopper by channels: the fastest on an H200 with Triton 3.6; 3.9 spills 8 bytes, 3.6 up to 32 (below)
TWO_SPILLED = {("attention_forward", 64), ("attention_forward", 128), ("attention_backward_keys", 128)}


def most_spilled(row):
    """Bytes that a configuration timed on an H200 may spill; its large tiles of vectors gain more than that costs."""
    if row["type"] != "bfloat16":
        # with 64 x 64 tiles and products of TF32 it took two thirds of the time of the next
        # and of a curve's heads of 256 channels there are no smaller tiles
        known = {("add_tiles", 64): 184, ("fire: attention_forward", 256): 264}
        known |= {(f"fire: attention_backward_{x}", 256): 8 for x in ("keys", "queries")}
        return known.get((row["kernel"], row["channels"]), 0)
    if row["channels"] == 256 and row["kernel"] == "transformer_xl: vector_backward_queries":
        return 8
    if (row["kernel"], row["channels"]) in TWO_SPILLED:
        return 8
    return 360 if ":" in row["kernel"] and (row["channels"], row["rows"]) == (64, 64) else 0


# the oldest Triton that is supported, which PyTorch 2.11 brings; `./dev test --extended` installs it there
OLDEST = Path(sys.prefix) / "triton-3.6.0"
with_oldest = pytest.mark.skipif(
    not (OLDEST / "ready").exists(),
    reason="Triton 3.6.0 is not installed beside the other; `./dev test --extended` does so if there is a network",
)
# most bytes that its code may spill, by architecture, type, channels and kernel
SPILLED_BY_OLDEST = {
    ("sm_90", "bfloat16", 64, "attention_forward"): 8,
    ("sm_90", "bfloat16", 64, "attention_backward_keys"): 8,
    ("sm_90", "bfloat16", 128, "attention_backward_keys"): 32,
    ("sm_90", "bfloat16", 128, "attention_backward_queries"): 16,
    ("sm_90", "float32", 64, "add_tiles"): 112,
    ("sm_100", "float32", 256, "attention_forward"): 8,
    ("sm_100", "float32", 128, "add_tiles"): 8,
    ("sm_90", "float32", 128, "attend_chunk"): 104,
    ("sm_90", "bfloat16", 64, "fire: attention_backward_keys"): 8,
    ("sm_80", "float32", 128, "fire: attention_backward_queries"): 8,
    **{(x, "float32", 256, "fire: attention_forward"): 264 for x in ("sm_80", "sm_90", "sm_100")},
    ("sm_90", "bfloat16", 256, "fire: attention_forward"): 8,
    ("sm_90", "bfloat16", 256, "fire: attention_backward_queries"): 8,
    ("sm_100", "bfloat16", 256, "fire: attention_forward"): 8,
    ("sm_80", "float32", 64, "fire: attention_backward_queries"): 8,
    ("sm_100", "float32", 64, "fire: attention_backward_queries"): 16,
    ("sm_100", "float32", 128, "fire: attention_backward_keys"): 8,
    ("sm_100", "float32", 256, "fire: attention_backward_keys"): 8,
    ("sm_90", "bfloat16", 64, "shaw: vector_backward_keys"): 232,
    ("sm_90", "bfloat16", 64, "shaw: vector_backward_queries"): 176,
    ("sm_90", "bfloat16", 64, "shaw: sum_vectors_queries"): 48,
    ("sm_90", "bfloat16", 64, "transformer_xl: vector_backward_keys"): 168,
    ("sm_90", "bfloat16", 64, "transformer_xl: sum_vectors_queries"): 24,
    ("sm_90", "bfloat16", 64, "deberta: vector_backward_keys"): 296,
    ("sm_90", "bfloat16", 64, "deberta: vector_backward_queries"): 56,
    ("sm_90", "bfloat16", 64, "deberta: sum_vectors_queries"): 104,
    ("sm_90", "bfloat16", 64, "deberta: sum_vectors_keys"): 16,
    ("sm_100", "float32", 128, "attend_chunk"): 128,
    ("sm_100", "bfloat16", 64, "shaw: sum_vectors_queries"): 8,
}


def printed(*command, before=(), **options):
    """What Python prints last, as JSON, in a process of its own: Triton either compiles or interprets in one.

    Packages in the folders of `before` come before those that are installed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": ":".join(map(str, [*before, ROOT / "src", ROOT]))} | options
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_the_committed_table_is_of_these_configurations(architecture):
    amd = architecture == "gfx942"
    results = (ROOT / "benchmarks" / "results").glob("amd_code_*.json" if amd else "gpu_code_*.json")
    newest = json.loads(max(results, key=lambda path: path.stem[-10:]).read_text(encoding="utf-8"))["results"]
    code = {"registers", "stack", "shared", "products", "faults"}
    rows = newest["kernels"] if amd else newest["architectures"][architecture]
    assert not amd or not any(row["stack"] for row in rows)
    # RTX GPUs, which take the tiles of sm_80, have 99 KiB
    assert architecture != "sm_80" or max(row["shared"] for row in rows) <= 99 * 1024
    held = [{name: value for name, value in row.items() if name not in code} for row in rows]
    assert printed("-c", LISTED, architecture, *(CHANNELS[:2] if amd else CHANNELS)) == held


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
@pytest.mark.parametrize(
    ("architecture", "channels"),
    [
        pytest.param("sm_80", CHANNELS[:1], marks=pytest.mark.extended),
        pytest.param("sm_80", CHANNELS[1:], marks=pytest.mark.long),
        pytest.param("sm_90", CHANNELS, marks=pytest.mark.extended),
        pytest.param("sm_100", CHANNELS[:1], marks=pytest.mark.extended),
        pytest.param("sm_100", CHANNELS[1:], marks=pytest.mark.long),
        pytest.param("gfx942", CHANNELS[:2], marks=pytest.mark.long),
    ],
)
def test_every_configuration_fits_into_registers_and_shared_memory(architecture, channels):
    _, count, faulty = printed("-c", PROGRAM, architecture, *channels)
    assert count == sum(CONFIGURATIONS[architecture, x] for x in channels) + OF_ANY_WIDTH
    assert all(row["faults"] == [f"{row['stack']} bytes spilled"] for row in faulty)
    timed = architecture == "sm_90"
    if architecture == "gfx942":
        assert not faulty
        return
    assert not [row for row in faulty if row["stack"] > (most_spilled(row) if timed or row["channels"] == 256 else 0)]


@with_oldest
@pytest.mark.parametrize(
    ("architecture", "channels"),
    [
        pytest.param("sm_80", CHANNELS, marks=pytest.mark.long),
        pytest.param("sm_90", CHANNELS[:1], marks=pytest.mark.extended),
        pytest.param("sm_90", CHANNELS[1:], marks=pytest.mark.long),
        pytest.param("sm_100", CHANNELS, marks=pytest.mark.long),
    ],
)
def test_the_oldest_triton_compiles_them_and_spills_no_more_than_is_known(architecture, channels):
    version, count, faulty = printed("-c", PROGRAM, architecture, *channels, before=[OLDEST])
    assert version == "3.6.0"
    assert count == sum(CONFIGURATIONS[architecture, x] for x in channels) + OF_ANY_WIDTH
    for row in faulty:
        about = architecture, row["type"], row["channels"], row["kernel"]
        assert row["faults"] == [f"{row['stack']} bytes spilled"], about
        assert row["stack"] <= SPILLED_BY_OLDEST.get(about, 0), about


@pytest.mark.long
@with_oldest
def test_the_oldest_triton_compiles_every_statement_of_every_kernel():
    # what it has in its cache it does not compile again
    program = str(Path(__file__).with_name("every_statement.py"))
    version, count, missing = printed(program, before=[OLDEST], TRITON_ALWAYS_COMPILE="1")
    assert version == "3.6.0"
    assert count > 1000
    assert missing == []


@pytest.mark.extended
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
@pytest.mark.parametrize(
    "before", [pytest.param([], id="newest"), pytest.param([OLDEST], id="oldest", marks=with_oldest)]
)
def test_the_scan_over_chunks_reads_what_it_stored_after_a_barrier_and_multiplies_in_float32(before, tmp_path):
    # Triton's interpreter has neither threads nor tensor cores, so it cannot tell
    source = (ROOT / "src/ordinate/ops/triton/chunk_scan_kernels.py").read_text(encoding="utf-8")
    barrier, precision, path = "        tl.debug_barrier()\n", '"ieee"', tmp_path / "chunk_scan_kernels.py"
    assert source.count(barrier) == source.count(precision) == 1
    mutants = source.replace(barrier, ""), source.replace(precision, '"tf32"')
    for text in (source, *mutants):
        path.write_text(text, encoding="utf-8")
        _, orders = printed("-c", ORDER, str(path), before=before)
        right = "tt.load tt.store tt.load barrier tt.load tt.load tt.dot tt.store"
        assert [order == right for order in orders] == [text is source] * 2


@pytest.mark.extended
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
@pytest.mark.parametrize(
    "before", [pytest.param([], id="newest"), pytest.param([OLDEST], id="oldest", marks=with_oldest)]
)
def test_the_join_of_near_and_far_keys_replaces_their_log_sum_exp_after_a_barrier(before, tmp_path):
    # Triton loads it once for the rows of the output and once to replace it, by other threads
    source = (ROOT / "src/ordinate/ops/triton/near_far.py").read_text(encoding="utf-8")
    barrier, path = "    tl.debug_barrier()\n", tmp_path / "near_far.py"
    assert source.count(barrier) == 1
    for text in (source, source.replace(barrier, "")):
        path.write_text(text, encoding="utf-8")
        _, (order,) = printed("-c", JOIN_ORDER, str(path), before=before)
        assert order.endswith("tt.load tt.load tt.store barrier tt.store") == (text is source)


@pytest.mark.extended
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
@pytest.mark.parametrize(
    "before", [pytest.param([], id="newest"), pytest.param([OLDEST], id="oldest", marks=with_oldest)]
)
def test_every_kernel_compiles_for_a_single_head_token_and_channel(before):
    sources = (path.read_text(encoding="utf-8") for path in Path(tiles.__file__).parent.glob("*.py"))
    launched = {name for text in sources for name in re.findall(r"\blaunch\((\w+), ", text)}
    assert len(launched) > 20
    _, compiled = printed(str(Path(__file__).with_name("smallest_sizes.py")), before=before)
    assert set(compiled) == launched


def test_a_table_has_configurations_for_all_channels_and_types():
    for kind in tiles.TILES:
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for channels in (16, 32, 64, 128, 256):
                if channels > tiles.most_channels(tiles.TILES, kind, dtype):
                    continue
                for window in (0, tiles.NARROW):
                    found = tiles.tiles(kind, dtype, channels, window=window)
                    assert found.diagonals.rows == found.diagonals.columns
                    assert all(min(tile.rows, tile.columns) >= 16 for tile in found[:5])
                    # the small case of the self-check has several chunks of keys
                    assert found.decoding.chunk <= 256


def test_tiles_of_vectors_by_offset_are_square_and_wide_float32_heads_have_none():
    for kind, sizes in vector_tiles.VECTOR_TILES.items():
        assert max(sizes[2]) == (128 if kind == "cdna" else 256)
        assert max(sizes[4]) == 64
        for dtype, channels in (
            (torch.bfloat16, 16),
            (torch.float16, 128),
            (torch.bfloat16, max(sizes[2])),
            (torch.float32, 64),
        ):
            for window in (0, vector_tiles.NARROW):
                found = vector_tiles.vector_tiles(kind, dtype, channels, window)
                assert all(tile.rows == tile.columns >= 16 for tile in found)


def test_what_lies_beyond_the_vectors_begins_at_the_same_tile_in_both_kernels_that_sum_it():
    for sizes in (*vector_tiles.VECTOR_TILES.values(), *vector_tiles.NARROW_TILES.values()):
        for found in (x for by_channels in sizes.values() for x in by_channels.values()):
            assert found.queries.rows == found.sums.rows


def test_shapes_in_kernels_are_named_constants():
    # Triton 3.6 does not compile zeros of a shape that holds an attribute of a form; compiling says so much later
    for path in Path(tiles.__file__).parent.glob("*.py"):
        assert not re.search(r"tl\.zeros\(\[[^\]]*FORM\.", path.read_text(encoding="utf-8")), path.name


def test_kernels_unpack_tuples_one_level_at_a_time():
    # Triton 3.6 does not compile an assignment to a tuple in a tuple; compiling says so much later
    found = 0
    for path in Path(tiles.__file__).parent.glob("*.py"):
        functions = [
            x for x in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(x, ast.FunctionDef)
        ]
        kernels = [x for x in functions if any(getattr(y, "id", None) == "kernel" for y in x.decorator_list)]
        for node in (node for function in kernels for node in ast.walk(function) if isinstance(node, ast.Assign)):
            found += 1
            nested = [x for target in node.targets for x in getattr(target, "elts", []) if isinstance(x, ast.Tuple)]
            assert not nested, f"{path.name}, line {node.lineno}"
    assert found > 100
