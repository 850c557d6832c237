"""Code of the Triton kernels for GPUs that are not there: registers, spills and shared memory of each configuration.

Triton compiles each shipped configuration as it would at the first launch, with the arguments that the host code
passes; its tools then read the code. Nothing is timed.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.harness.printing import show
from benchmarks.harness.saving import save
from ordinate.attention.backends.near_far import MAX_CHANNELS as NEAR_FAR_CHANNELS
from ordinate.ops.triton.tiles import TILES, tiles
from ordinate.ops.triton.vector_tiles import MAX_VALUE_CHANNELS, VECTOR_TILES

TOKENS = 1024
# distance from which on the bias is constant, as T5's
REACH = 128
# the same of Shaw's vectors by default
CLIPPED = 16
# of FIRE's bias by default, whose hidden layer has 32 units
PIECES = 64
TENSOR_CORES = re.compile(r"\b(?:HGMMA|HMMA|UTCHMMA)")
# kernels that pass over memory once, with one configuration: compiled with one number of channels
SMALL = {"find_poison", "find_delta", "find_key_numbers", "find_query_numbers"}
# shared memory that a program may have [bytes]
SHARED = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448}
LAYOUTS = {False: "half", True: "interleaved"}
CLASSES = {"sm_80": "ampere", "sm_90": "hopper", "sm_100": "blackwell"}


class Code(NamedTuple):
    """What the tools say of a compiled kernel.

    Args:
        registers: of a thread.
        stack: bytes of a thread that do not fit into registers.
        shared: shared memory of a program [bytes].
        products: instructions of the tensor cores.
    """

    registers: int
    stack: int
    shared: int
    products: int


OnCode = Callable[[str, Any, Callable[[], Code]], None]
"""Called with the name and the options of a kernel, and what compiles it."""


class Device:
    """Stands for the driver of a GPU that is not there.

    Args:
        number: of the device; Triton keeps what it has compiled by that number, so each target has its own.
        target: what Triton compiles for.
    """

    def __init__(self, number: int, target: Any) -> None:
        self.number, self.target = number, target

    def get_current_device(self) -> int:
        return self.number

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return self.target


def compile_for(architecture: str) -> None:
    """Make Triton compile for a GPU that is not there.

    Args:
        architecture: a key of `CLASSES`.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", int(architecture[3:]), 32)
    triton.runtime.driver.set_active(Device(list(CLASSES).index(architecture), target))


def compiled(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels of attention with a learned T5 bias and grouped heads: forward, backward and decoding.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: called with the name and the options of each kernel, and what compiles it.
    """
    from ordinate.ops.triton import attention, decode

    compile_for(architecture)
    attention.launch = decode.launch = recorder(on_code)
    attention.device_class = lambda device: CLASSES[architecture]
    q, k, v = inputs(dtype, channels)
    bias = torch.zeros(2, REACH + 1), None, None
    shape = True, 0, 0, REACH, True
    problem = attention.Problem(q, k, v, *bias, None, None, *shape, channels**-0.5, 0.0)
    results = attention.forward(problem)
    attention.backward(torch.zeros_like(results[0]), problem, results, True)
    newest = problem._replace(q=q[:, :, -1:], start=TOKENS - 1, origin=REACH - TOKENS + 1)
    decode.decode(newest)


def inputs(dtype: torch.dtype, channels: int) -> list[torch.Tensor]:
    """Return queries of two heads and the key and value that they share, as projections leave them."""
    return [torch.zeros(1, TOKENS, heads, channels, dtype=dtype).transpose(1, 2) for heads in (2, 1, 1)]


def recorder(on_code: OnCode, prefix: str = "") -> Callable[..., None]:
    """Return what stands for the launch of a kernel of attention: pass on its name, tile, and what compiles it."""

    def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> None:
        form = arguments[-1]
        tile = {"rows": form.rows, "columns": form.columns, **options}
        on_code(prefix + _name(function, arguments), tile, partial(code_of, function, grid, arguments, options))

    return launch


def compiled_near(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels of near keys, forward and backward, where their tiles are not those of whole texts.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention, near_far, vectors

    kind = CLASSES[architecture]
    if dtype == torch.float32 or tiles(kind, dtype, channels, window=REACH) == tiles(kind, dtype, channels):
        return
    compile_for(architecture)
    attention.device_class = vectors.device_class = lambda device: kind
    q, k, v = inputs(dtype, channels)
    shape = True, 0, 0, REACH, True, channels**-0.5, 0.0
    attention.launch = recorder(on_code, "near keys, t5: ")
    near = near_far.near(attention.Problem(q, k, v, torch.zeros(2, REACH + 1), *4 * [None], *shape))
    results = attention.forward(near)
    attention.backward(torch.zeros_like(results[0]), near, results, True)
    attention.launch, vectors.launch = (lambda *given: None), recorder(on_code, "near keys, shaw: ")
    shape, asked = (True, 0, 0, CLIPPED, True, channels**-0.5, 0.0), torch.zeros(1, CLIPPED + 1, channels)
    near = near_far.near(attention.Problem(q, k, v, *5 * [None], *shape))
    problem = vectors.VectorProblem(near, asked, None, asked)
    results = vectors.forward(problem)
    vectors.backward(torch.zeros_like(results[0]), problem, results, vectors.Learned(False, True, False, True))


def compiled_curve(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels with a bias that is a curve of the distance, as FIRE's with 32 units: forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention

    compile_for(architecture)
    attention.launch, attention.device_class = recorder(on_code, "fire: "), lambda device: CLASSES[architecture]
    q, k, v = inputs(dtype, channels)
    curve = torch.zeros(2, 1 + 2 * PIECES), torch.zeros(1, TOKENS), torch.zeros(PIECES)
    problem = attention.Problem(q, k, v, *5 * [None], True, 0, 0, 0, False, channels**-0.5, 0.0, *curve)
    results = attention.forward(problem)
    attention.backward(torch.zeros_like(results[0]), problem, results, True)


def compiled_vectors(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels for vectors by offset, as Shaw, Transformer-XL and DeBERTa have them: forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention, vectors

    compile_for(architecture)
    vectors.device_class = attention.device_class = lambda device: CLASSES[architecture]
    q, k, v = inputs(dtype, channels)
    near, all_offsets, one = (torch.zeros(2, entries, channels) for entries in (REACH + 1, TOKENS, 1))
    numbers = torch.zeros(2, TOKENS)
    # where heads are too wide for vectors beside values, Shaw has none
    values = near if channels <= MAX_VALUE_CHANNELS else None
    for scheme, origin, table, given in (
        ("shaw", REACH, None, (near, None, values)),
        ("transformer_xl", TOKENS - 1, numbers, (all_offsets, one, None)),
        ("deberta", REACH, None, (near, near, None)),
    ):
        attention.launch, vectors.launch = (lambda *given: None), recorder(on_code, f"{scheme}: ")
        # under a causal mask the vectors of Shaw and DeBERTa end behind, and with the query's own key
        shape = True, 0, 0, origin, table is None
        base = attention.Problem(q, k, v, table, None, None, None, None, *shape, channels**-0.5, 0.0)
        problem = vectors.VectorProblem(base, *given)
        results = vectors.forward(problem)
        vectors.backward(torch.zeros_like(results[0]), problem, results, vectors.Learned(True, True, True, True))


def compiled_beside(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile what goes through memory once: the keys that ALiBi needs, and near and far keys put together.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention, near_far, needed, vector_near_far, vectors

    compile_for(architecture)
    vectors.device_class = attention.device_class = lambda device: CLASSES[architecture]

    def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> None:
        form = arguments[-1]
        code = partial(code_of, function, grid, arguments, options)
        on_code(f"{kind}: {function.__name__}", {"rows": form.rows, "columns": form.columns, **options}, code)

    attention.launch = vectors.launch = lambda *given: None
    needed.launch = near_far.launch = vector_near_far.launch = launch
    q, k, v = inputs(dtype, channels)
    kind, shape = "alibi", (True, 0, 0, REACH, True, channels**-0.5, 0.0)
    attention.forward(attention.Problem(q, k, v, None, torch.ones(2, 2), None, None, None, *shape))
    if dtype == torch.float32 or channels > NEAR_FAR_CHANNELS:
        return
    kind = "t5, near and far"
    near_far.forward(attention.Problem(q, k, v, torch.zeros(2, REACH + 1), None, None, None, None, *shape))
    kind, near = "shaw, near and far", torch.zeros(1, REACH + 1, channels)
    given = vectors.VectorProblem(attention.Problem(q, k, v, None, None, None, None, None, *shape), near, None, near)
    results = vector_near_far.forward(given)
    vector_near_far.backward(torch.zeros_like(results[0]), given, results, vectors.Learned(False, True, False, True))


def _name(function: Any, arguments: tuple[Any, ...]) -> str:
    """Name a kernel, and of the sums of vectors the term."""
    name = function.__name__
    return name + ("_queries", "_keys", "_values")[arguments[-2]] if name == "sum_vectors" else name


def compiled_rotation(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the rotation of half of the channels, and of all, of queries as a projection leaves them.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of the channels.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import rotate

    compile_for(architecture)
    x = torch.zeros(1, TOKENS, 8, channels, dtype=dtype).transpose(1, 2)
    for interleaved, pairs in ((False, channels // 2), (True, channels // 2), (False, channels // 4)):

        def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> None:
            form = arguments[-1]
            name = "rotate_partly" if form.width > 2 * form.pairs else "rotate_" + LAYOUTS[form.interleaved]
            on_code(
                name,
                {"rows": form.rows, "columns": form.padded, **options},
                partial(code_of, function, grid, arguments, options),
            )

        rotate.launch = launch
        waves = torch.zeros(2, 1, 1, TOKENS, pairs).unbind()
        rotate.rotate(x, torch.empty_like(x), *waves, interleaved=interleaved, back=False)


def compiled_scans(architecture: str, channels: int, on_code: OnCode) -> None:
    """Compile linear attention with decay, forward and backward: RWKV-6, gated linear attention and RetNet.

    Args:
        architecture: a key of `CLASSES`.
        channels: channels of a head's keys and values, in float32.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import scans

    compile_for(architecture)
    x = torch.zeros(1, TOKENS, 2, channels).transpose(1, 2)
    start, bonus = torch.zeros(1, 2, channels, channels), torch.zeros(2, channels)
    for mixer, logs, given in (("rwkv6", x, bonus), ("gla", x, None), ("retnet", x[..., :1], None)):

        def launch(
            function: Any,
            grid: tuple[int, ...],
            arguments: tuple[Any, ...],
            options: dict[str, int],
            mixer: str = mixer,
        ) -> None:
            form = arguments[-1]
            name = f"{mixer}: {function.__name__}" + ("_back" if form.back else "")
            on_code(
                name,
                {"rows": form.rows, "columns": form.columns, **options},
                partial(code_of, function, grid, arguments, options),
            )

        scans.launch = launch
        problem = scans.Problem(x, x, x, logs, given, start)
        y, last, *kept = scans.forward(problem)
        scans.backward((y, last), problem, *kept)


def compiled_wkv(architecture: str, channels: int, on_code: OnCode) -> None:
    """Compile the WKV operator of RWKV-4, forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        channels: channels, in float32.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import wkv_kernels

    compile_for(architecture)

    def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> None:
        on_code(
            f"rwkv4: {function.__name__}",
            {"rows": 1, "columns": arguments[-1], **options},
            partial(code_of, function, grid, arguments, options),
        )

    wkv_kernels.launch = launch
    k, v = torch.zeros(2, 1, TOKENS, channels)
    given = k, v, torch.zeros(channels), torch.zeros(channels), torch.zeros(1, 3, channels)
    y, end, *rest = wkv_kernels.forward(*given)
    wkv_kernels.backward((y, end), given, (y, end, *rest))


def compiled_chunk_scan(architecture: str, channels: int, on_code: OnCode) -> None:
    """Compile the scan over chunks of the delta rule, forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        channels: channels of a head's keys and values, in float32.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import chunk_scan_kernels

    compile_for(architecture)

    def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> None:
        form = arguments[-1]
        name = f"delta: {function.__name__}" + ("_back" if form.back else "")
        on_code(
            name,
            {"rows": form.rows, "columns": form.columns, **options},
            partial(code_of, function, grid, arguments, options),
        )

    chunk_scan_kernels.launch = launch
    start, kept = torch.zeros(1, 2, channels, channels), torch.zeros(1, 2, 3, channels, channels)
    for back in (False, True):
        chunk_scan_kernels.scan(start, kept, kept, back)


def code_of(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> Code:
    """Compile a kernel and read its code by the tools of Triton's wheel.

    Args:
        function, grid, arguments, options: as in `ordinate.ops.triton.kernel.launch`.
    """
    import triton

    from ordinate.ops.triton.kernel import OPTIONS

    made = function.run(*arguments, grid=grid, warmup=True, **OPTIONS, **options)
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([tools / tool, *options, file.name], capture_output=True, text=True, check=True).stdout
            for tool, options in (("cuobjdump", ["-res-usage"]), ("nvdisasm", []))
        )
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    return Code(registers, stack, made.metadata.shared, len(TENSOR_CORES.findall(code)))


def faults(architecture: str, code: Code) -> list[str]:
    """Return what is wrong with a configuration: spilled registers, or more shared memory than there is."""
    found = [f"{code.stack} bytes spilled"] if code.stack else []
    return found + ([f"{code.shared} bytes of shared memory"] if code.shared > SHARED[architecture] else [])


def visit(
    architecture: str, channels: Sequence[int], on_kernel: Callable[[dict[str, Any], Callable[[], Code]], None]
) -> None:
    """Call a function with what each configuration is, and what compiles it."""
    for dtype, size in ((torch.bfloat16, 2), (torch.float32, 4)):
        for width in sorted(set(channels) & set(TILES[CLASSES[architecture]][size])):

            def add(
                name: str, tile: Any, compile: Callable[[], Code], dtype: Any = dtype, width: int = width
            ) -> None:
                about = {"type": str(dtype).removeprefix("torch."), "channels": width, "kernel": name, **tile}
                on_kernel(about, compile)

            compiled(architecture, dtype, width, add)
            compiled_curve(architecture, dtype, width, add)
            if width in VECTOR_TILES[CLASSES[architecture]][size]:
                compiled_vectors(architecture, dtype, width, add)
            compiled_near(architecture, dtype, width, add)
            compiled_beside(architecture, dtype, width, add)
            compiled_rotation(architecture, dtype, width, add)
            if dtype == torch.float32:
                compiled_scans(architecture, width, add)
                compiled_chunk_scan(architecture, width, add)
        if dtype == torch.float32:
            compiled_wkv(architecture, TOKENS, add)


def measured(architecture: str, channels: Sequence[int] = (64, 128, 256)) -> list[dict[str, Any]]:
    """Compile the configurations of an architecture for heads of so many channels, by default all."""
    rows: list[dict[str, Any]] = []
    once: set[tuple[str, str]] = set()

    def add(about: dict[str, Any], compile: Callable[[], Code]) -> None:
        small = about["kernel"].rpartition(": ")[2], about["type"]
        if small in once:
            return
        code = compile()
        if small[0] in SMALL:
            once.add(small)
            return
        rows.append(about | code._asdict() | {"faults": faults(architecture, code)})
        print(architecture, *about.values(), code, *faults(architecture, code), flush=True)

    visit(architecture, channels, add)
    return rows


def main(saved: bool) -> None:
    """Compile every configuration for each GPU; print its registers, spills and shared memory."""
    import triton

    results = {name: measured(name) for name in CLASSES}
    for architecture, rows in results.items():
        heads = ("registers", "stack", "shared", "products")
        cells = ((f"{x['kernel']} {x['type']} {x['channels']}", [f"{x[head]:>12}" for head in heads]) for x in rows)
        show(architecture, heads, 12, cells)
    if saved:
        save("gpu_code", {"triton": triton.__version__, "architectures": results})
