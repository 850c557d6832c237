"""Tensor argument checks (axes, dtype, device, matching sizes), and dtype promotion for sums."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ordinate.core.checks import need
from ordinate.core.devices import on_cpu, on_gpu
from ordinate.core.memory import need_memory

Module = TypeVar("Module", bound=nn.Module)
# whole numbers of options below this make modules that fit into the memory of any machine
SMALL_SIZE = 1 << 12

# types of devices that cannot hold float64 tensors
WITHOUT_FLOAT64 = frozenset({"mps"})

POSITION_DTYPES = (torch.int32, torch.int64, torch.float32, torch.float64)


def need_tensor(name: str, x: Any) -> None:
    """Raise a TypeError unless `x` is a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(x).__name__}; convert it with torch.as_tensor")


def need_vectors(name: str, x: Any, axes: str) -> None:
    """Raise unless `x` is a floating-point tensor with these axes, given as "batch, tokens, width"."""
    need_tensor(name, x)
    # messages are formatted only on failure: under torch.compile a symbolic size cannot be formatted
    if x.ndim != len(axes.split(", ")):
        raise ValueError(f"{name} needs the axes ({axes}); got {tuple(x.shape)}; reshape it")
    if not x.is_floating_point():
        raise ValueError(f"{name} needs floating-point numbers; got {x.dtype}; convert it")


def need_mask(name: str, x: Any, axes: str) -> None:
    """Raise unless `x` is a boolean tensor with these axes."""
    need_tensor(name, x)
    if x.dtype != torch.bool:
        raise ValueError(
            f"{name} must be a boolean mask, True at tokens; got {x.dtype}; convert it: {name} = mask == 1"
        )
    if x.ndim != len(axes.split(", ")):
        raise ValueError(f"{name} needs the axes ({axes}); got {tuple(x.shape)}; give one row for each sequence")


def need_positions(q_pos: Any, k_pos: Any) -> None:
    """Raise unless these are positions of queries and keys with compatible shapes, on one device."""
    for name, pos in (("q_pos", q_pos), ("k_pos", k_pos)):
        need_tensor(name, pos)
        if pos.dtype not in POSITION_DTYPES:
            raise ValueError(
                "positions must be int32, int64, float32 or float64, since 16-bit floats cannot represent large "
                "positions exactly and unsigned integers cannot represent negative offsets; "
                f"got {pos.dtype} for {name}; use int64 or float32"
            )
    shapes = tuple(q_pos.shape), tuple(k_pos.shape)
    if q_pos.ndim != 3 or k_pos.ndim != 3:
        raise ValueError(
            f"positions need the axes (batch, tokens, axes); got shapes {shapes[0]} and {shapes[1]}; "
            "add the missing axes: pos[None, :, None]"
        )
    if q_pos.shape[-1] != k_pos.shape[-1]:
        raise ValueError(
            f"queries and keys need the same number of position axes; got shapes {shapes[0]} and {shapes[1]}; "
            "give both the same last axis"
        )
    need_same_batch("q_pos", q_pos, "k_pos", k_pos)


def need_documents(q_pos: Tensor, k_pos: Tensor, q_document: Any, k_document: Any) -> None:
    """Raise unless document ids are given for all queries and keys, or for none."""
    if (q_document is None) != (k_document is None):
        raise ValueError("document ids must be given for queries and keys; got only one; give both, or neither")
    if q_document is None:
        return
    for name, pos, document in (("q_document", q_pos, q_document), ("k_document", k_pos, k_document)):
        need_tensor(name, document)
        if document.dtype not in POSITION_DTYPES[:2]:
            raise ValueError(
                f"document ids must be int32 or int64; got {document.dtype}; number documents from 0, -1 is padding"
            )
        if document.ndim != 2:
            raise ValueError(f"{name} needs the axes (batch, tokens); got {tuple(document.shape)}; reshape it")
        if document.shape[1] != pos.shape[1]:
            raise ValueError(
                f"every token needs a document id; got {document.shape[1]} ids for {pos.shape[1]} positions; "
                "give one for each; -1 is padding"
            )
        need_same_batch(name, document, "positions", pos)
    need_same_batch("q_document", q_document, "k_document", k_document)


def need_same_batch(name: str, x: Tensor, other: str, y: Tensor) -> None:
    """Raise unless batch sizes are equal or one of them is 1 (broadcast), and both tensors are on one device."""
    if x.shape[0] != y.shape[0] and 1 not in (x.shape[0], y.shape[0]):
        raise ValueError(
            f"{name} and {other} need the same batch size, or 1; got {x.shape[0]} and {y.shape[0]}; "
            "give both the same batch size"
        )
    need_device(name, x, other, y)


def need_device(name: str, x: Tensor, other: str, y: Tensor) -> None:
    """Raise unless both tensors are on the same device."""
    if x.device != y.device:
        raise ValueError(
            f"{name} and {other} must be on one device; got {x.device} and {y.device}; move them to the same device"
        )


def need_tokens(name: str, x: Tensor, tokens: int, pos: Tensor) -> None:
    """Raise unless `x`, which has this many tokens, matches the positions in tokens, batch size and device."""
    if tokens != pos.shape[1]:
        raise ValueError(
            f"{name} must have as many tokens as the geometry; got {tokens} in {tuple(x.shape)} for {pos.shape[1]}; "
            "check the order of its axes, or build the geometry for this length"
        )
    if pos.shape[0] not in (1, x.shape[0]):
        raise ValueError(
            f"{name} must have the batch size of the geometry; got {x.shape[0]} for {pos.shape[0]}; "
            "build the geometry for this batch"
        )
    need_device(name, x, "the geometry", pos)


def need_size(name: str, scheme: Any, size: str, came: int) -> None:
    """Raise unless a scheme or mixer that stores this size (`width`, `heads`, ...) was built for the given one."""
    made_for = getattr(scheme, size, None)
    # not `came in (None, made_for)`: `in` tests identity first, which is wrong for symbolic sizes in torch.compile
    if made_for is not None and made_for != came:
        kind = type(scheme).__name__
        raise ValueError(f"this {kind} was built for {size} {made_for}; got {came} in {name}; build one for {came}")


def need_scores(hook: str, scheme: Any, x: Any, size: tuple[int, ...]) -> None:
    """Raise unless what a hook of a scheme adds to scores is None, or numbers that broadcast to the scores.

    Args:
        hook: name of the hook.
        scheme: the scheme.
        x: what it adds.
        size: numbers of queries and keys; before them those of sequences and heads, where they are known.
    """
    if x is None:
        return
    name = f"{hook} of {type(scheme).__name__}"
    # a boolean matrix would be a mask to some ways to compute attention, and numbers to others
    need_vectors(name, x, "batch or 1, heads or 1, queries, keys")
    # not `came in (1, wanted)`, as above
    if not all(came == 1 or came == wanted for came, wanted in zip(x.shape[-len(size) :], size, strict=True)):
        axes = "queries and keys" if len(size) == 2 else "sequences, heads, queries and keys"
        raise ValueError(f"{name} needs a number for each of {size} {axes}; got {tuple(x.shape)}; give one")


def need_supported_positions(name: str, pos: Tensor, axes: tuple[int, ...], *, integer_only: bool) -> None:
    """Raise unless the scheme called `name` supports this number of position axes, and fractions if given.

    Args:
        name: name of the scheme, for the message.
        pos: the positions.
        axes: supported numbers of position axes.
        integer_only: only integer positions are supported.
    """
    supported = f"{name} takes positions with {' or '.join(map(str, axes))} axis"
    remedy = "choose a scheme that supports this number of axes, or drop the extra axes"
    need(pos.shape[-1] in axes, supported, lambda: f"got {pos.shape[-1]} axes", remedy)
    remedy = "round them, or choose a scheme for fractional positions"
    need(
        not integer_only or not pos.is_floating_point(), f"{name} takes integer positions", f"got {pos.dtype}", remedy
    )


def need_bounded_positions(name: str, pos: Tensor) -> None:
    """Raise unless the positions of the scheme called `name` are finite, and their differences fit into int64."""
    if pos.dtype == torch.int64 and has_free_values(pos):
        low, high = (int(x) for x in pos.aminmax())
        must = f"{name} takes positions above -2^62 and up to 2^62, whose differences fit into int64"
        need(low > -(2**62) and high <= 2**62, must, f"got {low} to {high}", "subtract a constant from all")
    if pos.is_floating_point():
        must, remedy = f"{name} takes finite positions", "give each token a finite position"
        need_true(pos.isfinite().all(), must, "got NaN or infinity", remedy)
        must, remedy = f"{name} takes positions from -2^62 to 2^62", "subtract a constant from all, or scale them"
        need_true((pos.abs() <= 2**62).all(), must, "got positions beyond", remedy)


def need_positions_below(name: str, pos: Tensor, length: int) -> None:
    """Raise unless all positions lie in 0 to `length` - 1, the table of the scheme called `name`."""
    low, high = pos.aminmax()
    must = f"{name} serves positions 0 to {length - 1} (max_length {length})"
    if not on_cpu(pos):
        need_true((low >= 0) & (high < length), must, "got others", "build it for more, or shorten the input")
        return
    least, most = low.item(), high.item()
    remedy = f"build it with max_length={int(most) + 1} or more, or shorten the input"
    fits = least >= 0 and most < length
    need(fits, must, f"got {least} to {most}", "count from 0" if least < 0 else remedy)


def need_true(condition: Tensor, must: str, came: str | Callable[[], str], remedy: str | Callable[[], str]) -> None:
    """Raise a ValueError unless a condition on the values of tensors holds.

    Reading it on a GPU would wait for all work given to the device. There the device itself checks it when it gets
    that far, as it checks indices: it prints what must hold and ends the process's use of the GPU. While
    torch.compile traces, and for tensors without values, nothing is checked.

    Args:
        condition: the condition, without axes.
        must: what must hold.
        came: what came instead; a function where saying so reads values.
        remedy: what to do; likewise.
    """
    if torch.compiler.is_compiling() or not has_values(condition):
        return
    if on_cpu(condition):
        if not condition:
            need(False, must, came, remedy if isinstance(remedy, str) else remedy())
    elif on_gpu(condition):
        torch._assert_async(condition, must)


def need_untraced() -> None:
    """Raise a ValueError inside torch.jit.trace: what is chosen by values and sizes would be fixed in its graph.

    That is the legacy exporter of torch.onnx too.
    """
    if not torch.compiler.is_compiling() and torch.jit.is_tracing():
        raise ValueError(
            "ways to compute are chosen by values and sizes, which torch.jit.trace would fix for all later inputs; "
            "got a call inside of it; use torch.export.export, with dynamic_shapes for other lengths"
        )


def has_free_values(x: Tensor) -> bool:
    """Whether values can be read without waiting for a device: on a CPU, and where there are any to read."""
    return on_cpu(x) and not torch.compiler.is_compiling() and has_values(x)


def at_least_float32(x: Tensor) -> Tensor:
    """Convert 16-bit floats to float32, for exact sums; float32 and float64 are returned unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def has_float64(device: torch.device) -> bool:
    """Whether a device computes in float64; Apple GPUs do not."""
    return device.type not in WITHOUT_FLOAT64


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on devices without float64."""
    return torch.float64 if has_float64(device) else torch.float32


def in_float64(x: Tensor) -> Tensor:
    """Convert to float64: on the device of `x`, or on the CPU if the device has no float64.

    What is computed from it goes back by `on_device`.
    """
    # on such devices, `to` with a dtype and a device may convert before it copies
    return x.double() if has_float64(x.device) else x.cpu().double()


def on_device(x: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Convert a result in float64 (see `in_float64`) to `dtype`, on `device`."""
    return x.to(dtype).to(device)


def contiguous_channels(x: Tensor) -> Tensor:
    """Return the tensor itself if numbers of its last axis lie side by side, else a contiguous copy."""
    return x if x.stride(-1) == 1 else x.contiguous()


def has_values(x: Tensor) -> bool:
    """Whether values can be read: those of tensors with memory, unless make_fx records operations."""
    return has_memory(x) and not is_recorded()


def has_memory(x: Tensor) -> bool:
    """Whether a tensor has memory: not meta and fake tensors, nor those that torch.func maps over."""
    return not (x.is_meta or isinstance(x, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(x))


def is_recorded() -> bool:
    """Whether make_fx records operations, for `torch.func.linearize` for example: a number that is read ends it."""
    # under torch.compile, which cannot trace the question, other ways are chosen
    if torch.compiler.is_compiling():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on for the device of `x`."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Context without autocast on the device of `x`."""
    return torch.autocast(x.device.type, enabled=False) if autocasts(x) else nullcontext()


def build_module(make: Callable[[], Module], options: Mapping[str, Any], what: str) -> Module:
    """Build a scheme or mixer, after a check that its parameters fit into memory.

    Args:
        make: the constructor with its arguments.
        options: the options that a user has given; only large ones require the check.
        what: the specification, for the message.

    Raises:
        ValueError: the parameters need more memory than this machine has.
    """
    sizes = [int(value) for value in options.values() if isinstance(value, str) and value.strip().isdecimal()]
    if max(sizes, default=0) >= SMALL_SIZE:
        with torch.device("meta"):
            parameters = list(make().parameters())
        need_memory(what, sum(parameter.numel() * parameter.element_size() for parameter in parameters))
    return make()
