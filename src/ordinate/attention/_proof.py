"""Trust by proof: a GPU's backend is chosen only after it has agreed with the reference formula in a small case."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from ordinate.attention._backend import AttentionCall, Backend, backends
from ordinate.attention._proof_case import disagreement
from ordinate.attention._proof_store import ProofStore, environment
from ordinate.attention._proof_structure import SCORE_HOOKS, constant, structure_of
from ordinate.core.devices import on_gpu
from ordinate.ops.triton.proofs import NO_MEMORY

UNTESTED = (
    "it has not been tested for such calls on this device, which cannot be done while torch.compile traces or a CUDA "
    "graph is captured: compute one step before, outside of both"
)


class Form(NamedTuple):
    """What a proof is valid for: everything by which a kernel, or its way through the code, may differ.

    Args:
        backend: name of the backend.
        dtype: dtype of q, k and v.
        widths: head widths of queries and of values.
        groups: query heads per key head.
        scheme: names of the classes of the scheme and its parts; empty: it adds nothing to the scores.
        hooks: hooks of the scheme that act on scores and outputs.
        structure: causality, window, documents and the like, where they apply (`structure_of`), and what the backend
            distinguishes (`Backend.proof_kind`): the kind of bias, and whether pairs lie beyond its reach.
        options: variations of the formula in use.
        gradients: whether gradients are asked for.
        learned: of each parameter of such a scheme, whether it needs a gradient: a bias that is frozen has other
            kernels than one that is learned. Empty where no gradients are asked for.
    """

    backend: str
    dtype: str
    widths: tuple[int, int]
    groups: int
    scheme: tuple[str, ...]
    hooks: tuple[str, ...]
    structure: tuple[str, ...]
    options: tuple[str, ...]
    gradients: bool
    learned: tuple[bool, ...]

    @classmethod
    def of(cls, backend: str, call: AttentionCall, kind: tuple[str, ...] = ()) -> "Form":
        """Return the form of a call, which is of a kind that the backend distinguishes."""
        scheme, sinks = call.at.scheme, call.score_options.sinks
        hooks = tuple(hook for hook in scheme.hooks if hook in SCORE_HOOKS)
        own = tuple(x.requires_grad for x in scheme.parameters()) if hooks else ()
        inputs = [call.q, call.k, call.v, *([] if sinks is None else [sinks])]
        gradients = torch.is_grad_enabled() and (any(own) or any(x.requires_grad for x in inputs))
        return cls(
            backend,
            str(call.q.dtype),
            (constant(call.q.shape[3]), constant(call.v.shape[3])),
            constant(call.groups),
            tuple(type(part).__name__ for part in scheme.modules()) if hooks else (),
            hooks,
            (*structure_of(call.at), *kind),
            call.score_options.in_use,
            gradients,
            own if gradients else (),
        )


class Proofs:
    """Proofs of this process, and those stored by earlier ones.

    Args:
        store: the stored proofs.
        environment: returns what a proof on a device depends on; None: proofs there are not stored.
        can_compute: whether a small case can be computed now.
    """

    def __init__(
        self,
        store: ProofStore,
        environment: Callable[[torch.device], dict[str, Any] | None],
        can_compute: Callable[[], bool],
    ) -> None:
        self.store, self.environment, self.can_compute = store, environment, can_compute
        self.known: dict[tuple[Form, torch.device], str | None] = {}
        self.has_warned = False

    def reason(self, backend: Backend, form: Form, call: AttentionCall) -> str | None:
        """Return why a backend must not be used for a call of this form; None: it has agreed with the reference."""
        key = form, call.q.device
        if key in self.known:
            return self.known[key]
        if self.is_stored(form, call.q.device):
            self.known[key] = None
            return None
        if not self.can_compute():
            self._warn(form, "the capture of a CUDA graph", "before the capture")
            return UNTESTED
        # what is found here is not asked for again, not even by the computation itself
        self.known[key] = "it is being tested"
        try:
            self.known[key] = self._tested(backend, form, call)
        except BaseException as error:
            # neither an interrupt nor a full device says anything about the backend
            del self.known[key]
            if isinstance(error, torch.OutOfMemoryError):
                return NO_MEMORY
            raise
        return self.known[key]

    def is_proved(self, form: Form, device: torch.device) -> bool:
        """Whether a form has been proved before, asked while torch.compile traces; warns once if not."""
        key = form, device
        if key in self.known:
            return self.known[key] is None
        if self.is_stored(form, device):
            return True
        self._warn(form, "torch.compile", "outside of torch.compile first")
        return False

    def _warn(self, form: Form, who: str, when: str) -> None:
        """Warn, once, of a backend that is left out since nothing can be computed now."""
        # PyTorch's attention is used untested then, and none is slower
        if self.has_warned or form.backend == "sdpa":
            return
        self.has_warned = True
        warnings.warn(
            f"{who} leaves out the attention backend {form.backend!r}, which must have been tested for {_said(form)} "
            f"on this device before; got no earlier call; compute one step {when}: it tests the backend, and stores "
            "the result for later processes",
            RuntimeWarning,
            stacklevel=3,
        )

    def is_stored(self, form: Form, device: torch.device) -> bool:
        """Whether an earlier process has proved the form on such a device."""
        facts = self._facts(form, device)
        return facts is not None and self.store.has(facts)

    def _facts(self, form: Form, device: torch.device) -> dict[str, Any] | None:
        about = self.environment(device)
        return None if about is None else {"environment": about, "form": form._asdict()}

    def _tested(self, backend: Backend, form: Form, call: AttentionCall) -> str | None:
        try:
            reason = disagreement(backend, call, gradients=form.gradients)
        except torch.OutOfMemoryError:
            raise
        # whatever a kernel or its compiler does here, another backend can take the call
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            reason = f"it failed in a small case: {type(error).__name__}: {lines[0]}"
        if reason is None:
            facts = self._facts(form, call.q.device)
            if facts is not None:
                self.store.add(facts)
            return None
        warnings.warn(
            f"the attention backend {form.backend!r} is not used for {_said(form)}: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return reason


def unproved_reason(name: str, call: AttentionCall, kind: tuple[str, ...] = ()) -> str | None:
    """Return why a backend must not be trusted with a call on a GPU; None: it has agreed with the reference there.

    The first call of a form (dtype, head widths, scheme, structure, options, gradients) computes a small case with
    the backend and with the reference formula. Where they disagree, or the backend fails, that is the reason, with
    one warning. Proofs are held by the process, and stored for later ones in the user's cache folder, by the names
    and versions of device, PyTorch, Triton, CUDA and cuDNN, and a digest of the code. While torch.compile traces, or
    a CUDA graph is captured, nothing is computed: only earlier proofs count. The first form without one that either
    meets has a warning.

    Args:
        name: name of the backend.
        call: the call; on other devices than GPUs no proof is asked for.
        kind: what the backend distinguishes of calls with the same scheme (`Backend.proof_kind`).
    """
    if not on_gpu(call.q):
        return None
    form = Form.of(name, call, kind)
    if torch.compiler.is_compiling():
        return None if _is_proved(*form, str(call.q.device)) else UNTESTED
    return _proofs().reason(backends()[name], form, call)


def _is_proved(*given: Any) -> bool:
    """Whether a form is proved already: a constant for torch.compile, given as the fields of `Form` and a device."""
    *fields, device = given
    return _proofs().is_proved(Form(*fields), torch.device(device))


# torch.compiler.assume_constant_result, whose import of the compiler takes a second, sets this
_is_proved._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _proofs() -> Proofs:
    return Proofs(ProofStore.of_user(), environment, _can_compute)


def _can_compute() -> bool:
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    return not capturing and not torch.compiler.is_compiling()


def _said(form: Form) -> str:
    """Say a form in words."""
    what = [form.dtype.removeprefix("torch."), f"head width {form.widths[0]}", *form.structure, *form.options]
    what += ["/".join(form.scheme)] if form.scheme else []
    what += ["gradients"] if form.gradients else []
    return ", ".join(what if all(form.learned) else [*what, "some parameters frozen"])
