"""`explain().workspace_bytes` is within a fifth of what PyTorch's allocator holds at most during a call."""

import gc
import subprocess
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from ordinate import Geometry, attend, explain
from ordinate.attention import _native, _workspace
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention._workspace import workspace_along
from ordinate.attention.backends import relative_vectors
from ordinate.ops.native import build
from ordinate.schemes import T5, Alibi, Cope, Deberta, Fire, NoPosition, Rope, Shaw, Toeplitz, TransformerXl
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.schemes.spectra.longrope import LongRope

HEADS, WIDTH = 4, 64
SHAW = {"heads": HEADS, "head_width": WIDTH}
VARIED = {"score_options": ScoreOptions(softcap=20.0, sinks=torch.zeros(HEADS))}
DROPOUT = {"dropout": 0.1}
SIZES = {"decode": (2000, 8000), "row_blocks": (1024, 1536), "custom_formula": (1100, 1536)}


def causal(tokens):
    return Geometry.causal(tokens)


def window(tokens):
    return Geometry.causal(tokens, window=99)


def packed(tokens):
    return Geometry.packed([400, tokens - 400])


def padded(tokens):
    return Geometry.padded(torch.arange(tokens)[None] < tokens - 50, causal=False)


def newest(tokens):
    return Geometry.causal(2, cached=tokens)


def t5():
    return T5(heads=HEADS)


def alibi():
    return Alibi(heads=HEADS)


def shaw():
    return Shaw(**SHAW)


def content():
    return Shaw(**SHAW, values=False)


def grown():
    return Rope(head_width=WIDTH, spectrum=Dynamic(trained_length=256, factor=2.0))


def long():
    # 256 lies inside the texts
    lengths = {"trained_length": 256, "factor": 4.0}
    return Rope(head_width=WIDTH, spectrum=LongRope(short_factor=[1.0], long_factor=[2.0], **lengths))


# backend, scheme, geometry, whether it learns, options
CASES = {
    "no mask": ("sdpa", NoPosition, causal, False, {}),
    "a mask": ("sdpa", NoPosition, packed, False, {}),
    "a mask of a window": ("sdpa", NoPosition, window, False, {}),
    "dropout": ("sdpa", NoPosition, causal, False, DROPOUT),
    "16-bit training": ("sdpa", NoPosition, causal, True, {}),
    "a bias": ("sdpa", alibi, causal, False, {}),
    "a frozen bias": ("sdpa", t5, causal, False, {}),
    "a learned bias": ("sdpa", t5, causal, True, {}),
    "a bias by content": ("sdpa", content, causal, False, {}),
    "a learned bias by content": ("sdpa", content, causal, True, {}),
    "vectors": ("relative_vectors", shaw, causal, True, {}),
    "vectors of each head": ("relative_vectors", lambda: TransformerXl(**SHAW, width=256), causal, False, {}),
    "a bias whose rows have gaps in memory": (
        "sdpa",
        lambda: Toeplitz(heads=HEADS, max_length=2048),
        Geometry.full,
        False,
        {},
    ),
    "reference": ("reference", NoPosition, causal, False, {}),
    "reference with a bias": ("reference", t5, packed, True, {}),
    "reference, varied": ("reference", alibi, causal, False, VARIED),
    "rates of each query": ("reference", grown, causal, True, {}),
    "rates of each query, documents": ("reference", grown, packed, False, {}),
    "rates of two lengths": ("reference", long, causal, False, {}),
    "learned, rates of two lengths": ("reference", long, causal, True, {}),
    "rows with rates of two lengths": ("row_blocks", long, causal, True, {}),
    "rows with rates of each query": ("row_blocks", grown, causal, False, {}),
    "rows": ("row_blocks", t5, causal, False, {}),
    "rows of a window": ("row_blocks", alibi, window, False, {}),
    "rows with gates": ("row_blocks", lambda: Cope(head_width=WIDTH), causal, False, {}),
    "rows by content": ("row_blocks", shaw, causal, True, {}),
    "varied": ("custom_formula", t5, causal, True, VARIED),
    "varied, no bias": ("custom_formula", NoPosition, causal, False, {"score_options": ScoreOptions(softcap=20.0)}),
    "a window": ("window", NoPosition, window, False, {}),
    "a window and a bias": ("window", t5, window, True, {}),
    "a window and documents": ("window", NoPosition, lambda n: Geometry.packed([400, n - 400], window=99), False, {}),
    "rotated": ("sdpa", lambda: Rope(head_width=WIDTH), causal, False, {}),
    "rotated, trained": ("reference", lambda: Rope(head_width=WIDTH), causal, True, {}),
    "scaled": ("relative_vectors", lambda: Deberta(**SHAW, width=256), causal, False, {}),
    "a step, rotated": ("decode", lambda: Rope(head_width=WIDTH), newest, False, {}),
    "a step": ("decode", t5, newest, False, {}),
    "a learned step": ("decode", t5, newest, True, {}),
    "a step, varied": ("decode", alibi, newest, False, VARIED),
    "a table": ("offset_bias", t5, causal, True, {}),
    "a frozen table": ("offset_bias", t5, causal, False, {}),
    "a frozen table in a window": ("offset_bias", t5, window, False, {}),
    "a table, all keys": ("offset_bias", t5, Geometry.full, False, {}),
    "a table and dropout": ("offset_bias", t5, causal, False, DROPOUT),
    "a table and documents": ("offset_bias", t5, packed, False, {}),
    "slopes": ("offset_bias", alibi, lambda tokens: causal(3 * tokens), False, {}),
    "padding": ("key_padding", NoPosition, padded, False, {}),
    "learned padding": ("key_padding", NoPosition, padded, True, {}),
}


def held(step) -> int:
    """The most that is held at once beyond what was held before, and beyond the result [bytes]."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        out = step()
    now = most = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most - out.numel() * out.element_size()


def said_and_held(case, size, dtype=torch.float32, batch=1):
    backend, make, at, learns, options = CASES[case]
    scheme, where = make(), at(size)
    sizes = [where.shape[0], where.shape[1], where.shape[1]]
    q, k, v = (torch.randn(batch, HEADS, n, WIDTH, dtype=dtype, requires_grad=learns) for n in sizes)
    options = {"backend": backend, **options}
    with torch.set_grad_enabled(learns):
        said = explain(q, k, v, scheme.at(where), **options).workspace_bytes
        # what is made on first use is not of the call
        attend(q, k, v, scheme.at(where), **options)
        return said, held(lambda: attend(q, k, v, scheme.at(where), **options))


def need_close(said, found):
    assert abs(said - found) <= 0.2 * found, f"{said / 1e6:.2f} MB said, {found / 1e6:.2f} held"


@pytest.mark.extended
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_the_workspace_that_is_explained_is_what_is_held(case, which, dtype):
    size = SIZES.get(CASES[case][0], (700, 1024))[which]
    need_close(*said_and_held(case, size, dtype, batch=1 + which))


@pytest.mark.parametrize(
    "case",
    [
        "a frozen bias",
        "a bias whose rows have gaps in memory",
        "reference",
        "rates of each query, documents",
        "a table and dropout",
        "a frozen table",
        "a frozen table in a window",
    ],
)
def test_the_workspace_of_a_short_call_is_what_is_held(case):
    need_close(*said_and_held(case, 600))


@pytest.mark.parametrize("tokens", [300, 1200])
def test_the_workspace_of_a_bias_that_is_made_in_cpp_for_many_pairs_is_what_is_held(tokens, monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE")
    if build.unavailable_reason("piecewise_linear"):
        pytest.skip("needs a C++ compiler")
    monkeypatch.setitem(CASES, "these", ("sdpa", lambda: Fire(heads=HEADS), Geometry.full, False, {}))
    need_close(*said_and_held("these", tokens))


def test_the_last_block_has_more_pairs_and_holds_less():
    # blocks of 256, 256 and 188 rows: tables of CoPE grow with the rows
    need_close(*said_and_held("rows with gates", 700, batch=3))


DENSE = {
    "fire": lambda: Fire(heads=HEADS),
    "cope": lambda: Cope(head_width=WIDTH, max_positions=16),
    "shaw": shaw,
    "shaw, keys": content,
    "transformer_xl": lambda: TransformerXl(**SHAW, width=256),
    "deberta": lambda: Deberta(**SHAW, width=256),
}


@pytest.mark.extended
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("at", [causal, Geometry.full], ids=["causal", "full"])
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize(("size", "batch"), [(400, 8), (1100, 4)], ids=["whole", "in blocks"])
def test_the_workspace_of_a_dense_bias_is_what_is_held(name, at, learns, size, batch, monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE")
    if build.unavailable_reason("attention"):
        pytest.skip("needs a C++ compiler")
    # many pairs, beside which the buffers in C++, which the profiler does not see, are small
    monkeypatch.setitem(CASES, name, ("dense_bias", DENSE[name], at, learns, {}))
    need_close(*said_and_held(name, size, batch=batch))


def test_what_autograd_keeps_of_making_vectors_is_counted(monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE")
    if build.unavailable_reason("attention"):
        pytest.skip("needs a C++ compiler")
    # the gradient of the projection needs the sinusoids, here the largest tensor
    monkeypatch.setitem(CASES, "wide", ("dense_bias", lambda: TransformerXl(**SHAW, width=4096), causal, True, {}))
    need_close(*said_and_held("wide", 1100, batch=1))


@pytest.mark.extended
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("at", [causal, window, packed, padded, Geometry.full], ids=lambda at: at.__name__)
@pytest.mark.parametrize("make", [NoPosition, alibi, t5], ids=lambda make: make.__name__)
def test_what_the_native_backend_makes_in_python_is_what_is_held(make, at, dtype, monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE")
    if build.unavailable_reason("attention"):
        pytest.skip("needs a C++ compiler")
    # the profiler does not see what is held in C++
    monkeypatch.setattr(_native, "_buffers", lambda call: 0)
    monkeypatch.setitem(CASES, "these", ("native", make, at, True, {}))
    need_close(*said_and_held("these", 900, dtype, batch=2))


@pytest.mark.extended
def test_blocks_of_a_varied_formula_are_freed_one_by_one(monkeypatch):
    # each block has its own bias: 50 MB of all of them, were they kept
    def at(tokens):
        return Geometry.padded(torch.arange(tokens) < tokens - torch.tensor([[0], [50], [500]]), causal=False)

    monkeypatch.setitem(CASES, "these", ("custom_formula", lambda: Fire(heads=HEADS), at, True, VARIED))
    said, found = said_and_held("these", 1024, batch=3)
    assert abs(said - found) < 0.05 * found


def test_explaining_a_call_with_dropout_draws_no_random_numbers():
    q, before = torch.randn(1, HEADS, 40, WIDTH), torch.get_rng_state()
    explain(q, q, q, alibi().at(causal(40)), dropout=0.5, backend="reference")
    assert torch.equal(before, torch.get_rng_state())


# in a process of its own, whose peak no other test has raised
NATIVE = """
import resource, sys, torch
from pathlib import Path
from ordinate import Geometry, attend, explain
from ordinate.schemes import NoPosition

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

keys, queries = int(sys.argv[1]), 256
q, k, v = (torch.randn(1, 4, n, 64, dtype=getattr(torch, sys.argv[2])) for n in (queries, keys, keys))
at, first = (NoPosition().at(Geometry.cross(queries, n)) for n in (keys, 2048))
said = explain(q, k, v, at, backend="native").workspace_bytes
attend(q, k[:, :, :2048], v[:, :, :2048], first, backend="native")
before = resident()
attend(q, k, v, at, backend="native")
# not ru_maxrss, which a process inherits from the one that started it
(peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(said, 1024 * int(peak) - before)
"""


@pytest.mark.extended
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("keys", [2**17, 2**18])
def test_the_workspace_of_the_native_backend_is_resident_memory(keys, dtype, monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE")
    if build.unavailable_reason("attention"):
        pytest.skip("needs a C++ compiler")
    command = [sys.executable, "-c", NATIVE, str(keys), dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    need_close(*map(int, done.stdout.split()))


# in a process of its own, too; blocks of memory that are freed are returned to the system
VECTORS = """
import ctypes, sys, torch
from pathlib import Path
from ordinate import Geometry, attend, explain
from ordinate.schemes import Deberta, Shaw, TransformerXl

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))

HEADS = {"heads": 8, "head_width": 64, "width": 256}
MAKE = {
    "shaw": lambda: Shaw(head_width=64),
    "transformer_xl": lambda: TransformerXl(**HEADS),
    "deberta": lambda: Deberta(**HEADS),
}
scheme, options = MAKE[sys.argv[1]](), {"backend": "relative_vectors", "scale": 0.125}
torch.set_num_threads(int(sys.argv[3]))
tokens = int(sys.argv[2])
at = scheme.at(Geometry.causal(tokens))
q, k, v = torch.randn(3, 1, 8, tokens, 64).unbind()
with torch.no_grad():
    # oneDNN keeps what it compiles for each size of a product
    attend(q, k, v, at, **options)
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS")
    # the highest resident set from here on
    Path("/proc/self/clear_refs").write_text("5")
    out = attend(q, k, v, at, **options)
    peak = status("VmHWM")
    told = explain(q, k, v, at, **options)
assert told.way.startswith("the C++ kernel"), told.way
print(told.workspace_bytes, peak - before - out.numel() * 4)
"""


@pytest.mark.extended
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("tokens", ["4096", "8192"])
@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta"])
def test_the_workspace_of_vectors_by_offset_is_resident_memory(name, tokens, threads, monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    if build.unavailable_reason("attention"):
        pytest.skip("needs a C++ compiler")
    done = subprocess.run(
        [sys.executable, "-c", VECTORS, name, tokens, threads], capture_output=True, text=True, check=True
    )
    need_close(*map(int, done.stdout.split()))


def test_a_computation_with_another_number_of_steps_is_judged_by_its_peaks():
    q = torch.zeros(1, 1, 4, 1)
    call = AttentionCall(q, q, q, NoPosition().at(causal(4)), 1.0, 0.0, ScoreOptions())

    def of(size):
        # a step and a kibibyte for each unit of size
        return lambda: torch.stack([torch.zeros(256) for _ in range(size)]).sum()

    # the result's 4 bytes are not counted
    small, large = (4 + workspace_along(of, size, (2, 3), 1, call) for size in (3, 30))
    assert large == 10 * small


@pytest.mark.extended
@pytest.mark.parametrize("size", [600, 1100])
@pytest.mark.parametrize(
    ("make", "at"),
    [
        (lambda: TransformerXl(**SHAW, width=256), causal),
        (shaw, window),
        (shaw, padded),
        (lambda: Shaw(heads=HEADS, head_width=WIDTH, per_head=True), packed),
    ],
    ids=["transformer_xl", "window", "padded", "packed"],
)
def test_the_workspace_of_vectors_by_offset_is_what_is_held(make, at, size, monkeypatch):
    monkeypatch.setitem(CASES, "these", ("relative_vectors", make, at, False, {}))
    need_close(*said_and_held("these", size, batch=2))


@pytest.mark.extended
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("make", "at"),
    [
        (lambda: TransformerXl(**SHAW, width=256), causal),
        (lambda: Shaw(head_width=WIDTH, values=False, past=2000), Geometry.full),
        (shaw, causal),
        (shaw, padded),
        (lambda: TransformerXl(**SHAW, width=256, max_offset=40), packed),
    ],
    ids=["transformer_xl", "keys", "shaw", "padded", "clamped"],
)
def test_what_vectors_by_offset_make_in_python_for_the_kernel_is_what_is_held(make, at, threads, dtype, monkeypatch):
    monkeypatch.delenv("ORDINATE_NATIVE")
    if build.unavailable_reason("attention"):
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(relative_vectors, "MIN_NATIVE_PAIRS", (1, 1, 1))
    # the profiler does not see what is held in C++
    monkeypatch.setattr(relative_vectors, "kernel_buffers", lambda *sizes: 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setitem(CASES, "these", ("relative_vectors", make, at, True, {}))
    need_close(*said_and_held("these", 1100, dtype, batch=2))


@pytest.mark.parametrize(
    ("q", "k", "threads", "buffers"),
    [
        # as PyTorch 2.13 allocated them on an Intel Xeon with AMX
        ((1, 4, 300, 16), (1, 4, 300, 16), 2, 162_816 + 76_800 + 2 * 38_400 + 19_200),
        ((1, 8, 300, 16), (1, 2, 300, 16), 1, 81_408 + 38_400 + 2 * 19_200 + 9_600),
        ((2, 4, 700, 64), (2, 4, 700, 64), 2, 295_936 + 131_072 + 2 * 716_800 + 131_072),
        ((1, 4, 64, 16), (1, 4, 2000, 16), 2, 135_680 + 65_536 + 2 * 256_000 + 32_768),
    ],
)
def test_copies_of_keys_and_values_for_tiles_of_bfloat16_are_counted(q, k, threads, buffers, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(_workspace, "multiplies_tiles", lambda: True)
    assert _workspace.fused_kernel_bytes(q[2], q, k, torch.bfloat16) == buffers
    monkeypatch.setattr(_workspace, "multiplies_tiles", lambda: False)
    assert _workspace.fused_kernel_bytes(q[2], q, k, torch.bfloat16) < buffers
