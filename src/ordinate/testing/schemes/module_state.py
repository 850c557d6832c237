"""Robustness of the module state: casts, meta device, state dict, copies, autocast, repeated calls."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.core import catalog
from ordinate.core.geometry import Geometry
from ordinate.schemes._scheme import Scheme
from ordinate.testing.assert_close import assert_max_close
from ordinate.testing.case import SIZES, SchemeCase, attention, check_reset, hook_outputs, random_qkv
from ordinate.testing.check import InapplicableError, makes_tensors_on_a_gpu


def casting_to_lower_precision_and_back_rounds_parameters_only(case: SchemeCase) -> None:
    """After `.bfloat16()` or `.half()` outputs are bit-identical to those of a scheme with rounded parameters."""
    case.skip_unless_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias", "value_bias")
    for dtype in (torch.bfloat16, torch.float16):
        rounded = case.scheme(torch.float32)
        with torch.no_grad():
            for parameter in rounded.parameters():
                parameter.copy_(parameter.to(dtype))
        _check_same(case, case.scheme(torch.float32).to(dtype).float(), rounded, f"after .to({dtype}) and back")


def casting_a_scheme_without_parameters_changes_nothing(case: SchemeCase) -> None:
    """`.bfloat16()` and `.half()` leave outputs bit-identical."""
    _need_no_parameters(case)
    for dtype in (torch.bfloat16, torch.float16):
        _check_same(case, case.scheme(dtype), case.scheme(torch.float32), f"after .to({dtype})")


def construction_on_the_meta_device_loses_nothing(case: SchemeCase) -> None:
    """A scheme built on the meta device, materialised and loaded from a state dict equals the saved one."""
    case.skip_unless_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias", "value_bias")
    scheme = case.scheme(torch.float32)
    with torch.device("meta"):
        empty = case.scheme(torch.float32)
    empty = empty.to_empty(device=torch.get_default_device())
    empty.load_state_dict(scheme.state_dict(), strict=True)
    _check_same(case, empty, scheme, "after construction on the meta device")


def reset_parameters_gives_the_values_of_a_new_scheme(case: SchemeCase) -> None:
    """After `reset_parameters` a scheme whose memory was empty has the parameters of a new one."""
    if not list(case.scheme().parameters()):
        raise InapplicableError("it has no parameters")
    check_reset(lambda: case.kind(**catalog.bind(case.kind, case.options, SIZES)))


def a_state_dict_and_a_deep_copy_reproduce_the_scheme(case: SchemeCase) -> None:
    """A deep copy and a new instance with the loaded state dict give bit-identical outputs."""
    scheme, loaded = case.scheme(torch.float32), case.scheme(torch.float32, seed=1)
    loaded.load_state_dict({name: value.clone() for name, value in scheme.state_dict().items()}, strict=True)
    _check_same(case, loaded, scheme, "after a state dict round trip")
    _check_same(case, copy.deepcopy(scheme), scheme, "after a deep copy")


def autocast_does_not_change_the_encoding(case: SchemeCase) -> None:
    """Embeddings, queries, keys and attention in bfloat16 are bit-identical under autocast."""
    scheme, where = case.scheme(torch.float32), case.with_axes(Geometry.causal(9))
    x, (q, k, v) = case.embeddings(2, 9, torch.float32), random_qkv(2, 9, torch.bfloat16)

    def mark() -> tuple[Tensor, ...]:
        at = scheme.at(where)
        return at.embed(x), *at.encode(q.float(), k.float()).pair, attention(scheme, q, k, v, where)

    plain = mark()
    with torch.autocast("cpu", torch.bfloat16):
        under = mark()
    for name, one, other in zip(("embed", "encode_query", "encode_key", "attention"), under, plain, strict=True):
        assert one.dtype == other.dtype, f"{name} returns {one.dtype} under autocast"
        assert one.equal(other), f"{name} changes under autocast"


def calls_have_no_side_effects(case: SchemeCase) -> None:
    """Inference mode, longer sequences, other dtypes or writing into results do not change later results."""
    used = case.scheme(torch.float32)
    _disturb(used, lambda: case.with_axes(Geometry.causal(5)))
    _disturb(used, lambda: case.with_axes(Geometry.causal(60)))
    fresh = case.scheme(torch.float32)
    _check_same(case, used, fresh, "after other uses")
    model = case.model()
    x, where = case.embeddings(1, 5), case.with_axes(Geometry.causal(5))
    with torch.inference_mode():
        model(x, where)
    out = model(x.requires_grad_(), where)
    out.sum().backward()
    assert x.grad is not None, "training after inference mode gives no gradient"


def _disturb(scheme: Scheme, place: Callable[[], Geometry]) -> None:
    with torch.inference_mode():
        for dtype in (torch.float16, torch.float32, torch.float64):
            for out in hook_outputs(scheme, place(), dtype).values():
                out.zero_()


def _need_no_parameters(case: SchemeCase) -> None:
    case.skip_unless_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias", "value_bias")
    if any(True for _ in case.scheme().parameters()):
        raise InapplicableError("it has parameters, which casts round")


def _check_same(case: SchemeCase, one: Scheme, other: Scheme, when: str) -> None:
    where = case.with_axes(Geometry.causal(23))
    made, expected = hook_outputs(one, where, torch.float32), hook_outputs(other, where, torch.float32)
    for hook in made:
        if makes_tensors_on_a_gpu():
            # its sums by index have no fixed order
            assert_max_close(made[hook], expected[hook], 1e-6, f"{hook} {when}")
        else:
            assert made[hook].equal(expected[hook]), f"{hook} differs {when}"
