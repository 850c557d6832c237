"""Trust in operators by proof: one is used only after it has agreed with the plain formula in this process."""

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ordinate.core.closeness import difference, proof_factor
from ordinate.core.devices import on_gpu
from ordinate.ops.triton.availability import unavailable_reason

UNTESTED = (
    "it has not been tested on this device, which cannot be done while torch.compile traces or a CUDA graph is "
    "captured: compute one step before, outside of both"
)
NO_MEMORY = "the device ran out of memory while it was tested for such calls: free some; the next call tests it again"
# a small case: returns how the operator differs from the plain formula there; None: it agrees
Case = Callable[[], str | None]


def unsupported_reason(x: Tensor, types: tuple[torch.dtype, ...]) -> str | None:
    """Return why no operator takes a tensor: of another device, of another dtype, or without Triton; None: it does.

    Args:
        x: one of the inputs.
        types: dtypes that the operator takes.
    """
    if not on_gpu(x) or type(x) is not Tensor:
        return "only tensors on GPUs are supported"
    if x.dtype not in types:
        return f"{x.dtype} is not supported"
    return unavailable_reason(x.device)


def unproved_reason(operator: str, form: tuple[Any, ...], said: str, case: Case) -> str | None:
    """Return why an operator must not be used for calls of a form; None: it has agreed with the plain formula there.

    The first call of a form computes a small case; that alone waits for the GPU. What is found is held by the
    process. Where they disagree, or the operator fails, there is one warning. Where the device has no memory left,
    nothing is found. While torch.compile traces, or a CUDA graph is captured, nothing is computed: only earlier
    proofs count. The first form without one that either meets has a warning.

    Args:
        operator: name of the operator.
        form: what a proof is valid for, the device included: strings, numbers and dtypes.
        said: the form in words.
        case: computes the small case.
    """
    if torch.compiler.is_compiling():
        return None if _is_proved(operator, said, *form) else UNTESTED
    key, known = (operator, *form), found()
    if key not in known:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            _warn(operator, said, "the capture of a CUDA graph", "before the capture")
            return UNTESTED
        try:
            known[key] = _tested(operator, said, case)
        except torch.OutOfMemoryError:
            return NO_MEMORY
    return known[key]


def first_difference(
    names: Iterable[str], ours: Iterable[Tensor], usual: Iterable[Tensor], exact: Iterable[Tensor]
) -> str | None:
    """Return in which result an operator differs from the plain formula; None: in none.

    Args:
        names: of the results, those of gradients with that word.
        ours: results of the operator.
        usual: of the plain formula, in the same dtype.
        exact: of the plain formula, in float64.
    """
    for name, out, one, true in zip(names, ours, usual, exact, strict=True):
        reason = difference(out, one, true, factor=proof_factor(one.dtype, of_gradient="gradient" in name))
        if reason is not None:
            return f"it differs from the plain formula in a small case: {name}, {reason}"
    return None


@cache
def found() -> dict[tuple[Any, ...], str | None]:
    """What this process has found: for each operator and form the reason against it, or None."""
    return {}


def _is_proved(operator: str, said: str, *form: Any) -> bool:
    """Whether an operator is proved for a form already: a constant for torch.compile; warns once if not."""
    reason = found().get((operator, *form), UNTESTED)
    if reason is UNTESTED:
        _warn(operator, said, "torch.compile", "outside of torch.compile first")
    return reason is None


# torch.compiler.assume_constant_result, whose import of the compiler takes a second, sets this
_is_proved._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _warn(operator: str, said: str, who: str, when: str) -> None:
    """Warn, once for each operator, that it is left out since nothing can be computed now."""
    if operator in _warned_of():
        return
    _warned_of().add(operator)
    warnings.warn(
        f"{who} leaves out the Triton {operator}, which must have been tested for {said} in this process before; got "
        f"no earlier call; compute one step {when}",
        RuntimeWarning,
        stacklevel=4,
    )


@cache
def _warned_of() -> set[str]:
    return set()


def _tested(operator: str, said: str, case: Case) -> str | None:
    try:
        # tensors made here must be usable with autograd, whatever the caller's mode
        with torch.inference_mode(False), torch.no_grad():
            reason = case()
    # says nothing about the operator
    except torch.OutOfMemoryError:
        raise
    # whatever a kernel or its compiler does here, PyTorch can compute it
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        reason = f"it failed in a small case: {type(error).__name__}: {lines[0]}"
    if reason is not None:
        warnings.warn(f"the Triton {operator} is not used for {said}: {reason}", RuntimeWarning, stacklevel=4)
    return reason
