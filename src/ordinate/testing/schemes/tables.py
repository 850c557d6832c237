"""Nothing that is done to a module damages what it computes."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.scheme import Scheme
from ordinate.testing.case import Case, attention, drawn, marks
from ordinate.testing.check import InapplicableError


def casting_to_lower_precision_and_back_rounds_parameters_only(case: Case) -> None:
    """After `.bfloat16()` or `.half()` it computes what its rounded parameters say, bit by bit."""
    case.need_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias", "carry")
    for dtype in (torch.bfloat16, torch.float16):
        rounded = case.scheme(torch.float32)
        with torch.no_grad():
            for parameter in rounded.parameters():
                parameter.copy_(parameter.to(dtype))
        _check_same(case, case.scheme(torch.float32).to(dtype).float(), rounded, f"after .to({dtype}) and back")


def a_low_precision_scheme_marks_full_precision_tokens_alike(case: Case) -> None:
    """Without parameters, `.bfloat16()` and `.half()` change nothing at all."""
    _need_no_parameters(case)
    for dtype in (torch.bfloat16, torch.float16):
        _check_same(case, case.scheme(dtype), case.scheme(torch.float32), f"after .to({dtype})")


def birth_on_the_meta_device_loses_nothing(case: Case) -> None:
    """Made without memory, given some, and loaded, it is the scheme that was saved."""
    case.need_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias", "carry")
    scheme = case.scheme(torch.float32)
    with torch.device("meta"):
        empty = case.scheme(torch.float32)
    empty = empty.to_empty(device="cpu")
    empty.load_state_dict(scheme.state_dict(), strict=True)
    _check_same(case, empty, scheme, "after birth on the meta device")


def a_state_dict_and_a_copy_hold_all_of_it(case: Case) -> None:
    """A deep copy, and a new instance that loads the state, compute the same bits."""
    scheme, loaded = case.scheme(torch.float32), case.scheme(torch.float32, seed=1)
    loaded.load_state_dict({name: value.clone() for name, value in scheme.state_dict().items()}, strict=True)
    _check_same(case, loaded, scheme, "after a state dict round trip")
    _check_same(case, copy.deepcopy(scheme), scheme, "after a deep copy")


def autocast_does_not_reach_its_tables(case: Case) -> None:
    """Tokens, queries and keys are marked alike under autocast, and attention in bfloat16 is the same."""
    scheme, where = case.scheme(torch.float32), case.place(Geometry.causal(9))
    x, (q, k, v) = case.vectors(2, 9, torch.float32), drawn(2, 9, torch.bfloat16)

    def mark() -> tuple[Tensor, ...]:
        at = scheme.at(where)
        return at.embed(x), *at.encode(q.float(), k.float()), attention(scheme, q, k, v, where)

    plain = mark()
    with torch.autocast("cpu", torch.bfloat16):
        under = mark()
    for name, one, other in zip(("embed", "encode_query", "encode_key", "attention"), under, plain, strict=True):
        assert one.dtype == other.dtype, f"{name} gives {one.dtype} under autocast"
        assert one.equal(other), f"{name} changes under autocast"


def use_leaves_no_trace(case: Case) -> None:
    """Inference mode, a longer text, another type, or writing into a result: the next result is the same."""
    used = case.scheme(torch.float32)
    _disturb(used, lambda: case.place(Geometry.causal(5)))
    _disturb(used, lambda: case.place(Geometry.causal(60)))
    fresh = case.scheme(torch.float32)
    _check_same(case, used, fresh, "after other uses")
    model = case.model()
    x, where = case.vectors(1, 5), case.place(Geometry.causal(5))
    with torch.inference_mode():
        model(x, where)
    out = model(x.requires_grad_(), where)
    out.sum().backward()
    assert x.grad is not None, "training after inference mode gives no gradient"


def _disturb(scheme: Scheme, place: Callable[[], Geometry]) -> None:
    with torch.inference_mode():
        for dtype in (torch.float16, torch.float32, torch.float64):
            for out in marks(scheme, place(), dtype).values():
                out.zero_()


def _need_no_parameters(case: Case) -> None:
    case.need_hook("embed", "encode_query", "encode_key", "score", "bias", "content_bias", "carry")
    if any(True for _ in case.scheme().parameters()):
        raise InapplicableError("it has parameters, which are rounded")


def _check_same(case: Case, one: Scheme, other: Scheme, when: str) -> None:
    where = case.place(Geometry.causal(23))
    made, expected = marks(one, where, torch.float32), marks(other, where, torch.float32)
    for hook in made:
        assert made[hook].equal(expected[hook]), f"{hook} computes something else {when}"
