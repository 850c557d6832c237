"""Supported positions, and errors for all others."""

from collections.abc import Callable

import torch

from ordinate.core.geometry import Geometry
from ordinate.schemes._scheme import Scheme
from ordinate.testing.case import HEAD_WIDTH, WIDTH, SchemeCase, hook_outputs
from ordinate.testing.check import InapplicableError, makes_tensors_on_a_gpu

LARGE_POSITIONS = (10_000_000, 2**31 - 1)


def positions_beyond_max_length_raise_an_error(case: SchemeCase) -> None:
    """An error with both numbers, from `at` and from `embed` itself; the last position below is accepted."""
    scheme = case.scheme()
    if scheme.max_length is None:
        raise InapplicableError("it supports any length")
    if makes_tensors_on_a_gpu():
        raise InapplicableError("a GPU checks positions itself, and a failed check ends the process's use of it")
    last = scheme.max_length - 1
    hook_outputs(scheme, case.with_axes(Geometry.from_positions(torch.tensor([[[last]]]))))
    for pos in (last + 1, -1):
        _check_raises(case, scheme, pos)


def outputs_are_finite_at_any_length(case: SchemeCase) -> None:
    """Without a `max_length`, outputs are finite at positions of ten million and 2^31 - 1."""
    scheme = case.scheme(torch.float32)
    if scheme.max_length is not None:
        raise InapplicableError(f"it supports positions below {scheme.max_length}")
    model = case.model(torch.float32)
    for far in LARGE_POSITIONS:
        # tokens at the beginning too, so that distances are as large as positions
        where = case.with_axes(Geometry.from_positions(torch.tensor([0, 1, far - 1, far])[None, :, None]))
        for hook, out in hook_outputs(scheme, where, torch.float32).items():
            assert out.isfinite().all(), f"{hook} is not finite at position {far}"
        assert model(case.embeddings(1, 4, torch.float32), where).isfinite().all(), f"output not finite at {far}"


def a_wrong_number_of_axes_raises_an_error(case: SchemeCase) -> None:
    """With a ValueError that states the supported numbers and the number given."""
    scheme = case.scheme()
    wrong = max(scheme.axes) + 1
    message = _error_of(lambda: scheme.at(Geometry.from_positions(torch.zeros(1, 3, wrong, dtype=torch.long))))
    assert message is not None, f"it accepts {wrong} axes, though it declares {scheme.axes}"
    assert f"{wrong} ax" in message, f"the error does not state that {wrong} axes were given: {message}"


def fractional_positions_are_accepted_or_rejected_as_declared(case: SchemeCase) -> None:
    """Integers given as floats mean the same; with `integer_positions`, fractions raise a ValueError that says so."""
    model, x = case.model(), case.embeddings(1, 4)
    whole = case.with_axes(Geometry.from_positions(torch.tensor([0, 3, 4, 9])[None, :, None]))
    halves = case.with_axes(
        Geometry.from_positions(torch.tensor([0.5, 3.0, 4.25, 9.0], dtype=torch.float64)[None, :, None])
    )
    message = _error_of(lambda: case.scheme().at(halves))
    if case.scheme().integer_positions:
        assert message is not None, "declared whole, but it accepts fractional positions"
        named = "integer" in message or "fraction" in message
        assert named, f"the error does not mention fractional positions: {message}"
        return
    assert message is None, f"it rejects fractional positions without declaring whole: {message}"
    assert model(x, halves).isfinite().all(), "fractional positions give non-finite values"
    floats = case.with_axes(Geometry.from_positions(whole.q_pos.double()))
    assert model(x, floats).equal(model(x, whole)), "4.0 is encoded differently from 4"


def inputs_of_one_and_zero_tokens_are_accepted(case: SchemeCase) -> None:
    """One token, no tokens and an empty batch are accepted by every hook."""
    for dtype in (torch.float32, torch.float64):
        scheme, model = case.scheme(dtype), case.model(dtype)
        for tokens in (1, 0):
            where = case.with_axes(Geometry.causal(tokens))
            for hook, out in hook_outputs(scheme, where, dtype).items():
                rows, columns = _shapes(tokens)[hook]
                # queries and keys may become wider, both by the same amount, which attention checks
                wider = hook.startswith("encode") and out.shape[-1] > columns
                shape = (rows, out.shape[-1] if wider else columns)
                assert out.shape[-2:] == shape, f"{hook} of {tokens} tokens has shape {tuple(out.shape)}"
                assert out.isfinite().all(), f"{hook} of {tokens} tokens is not finite"
            assert model(case.embeddings(2, tokens, dtype), where).shape == (2, tokens, WIDTH)
        assert model(case.embeddings(0, 3, dtype), case.with_axes(Geometry.causal(3))).shape == (0, 3, WIDTH)


def _check_raises(case: SchemeCase, scheme: Scheme, pos: int) -> None:
    where = case.with_axes(Geometry.from_positions(torch.tensor([[[pos]]])))
    calls: dict[str, Callable[[], object]] = {"at": lambda: scheme.at(where)}
    if "embed" in scheme.hooks:
        calls["embed"] = lambda: scheme.embed(case.embeddings(1, 1), where.q_pos)
    for name, call in calls.items():
        message = _error_of(call)
        assert message is not None, f"{name} accepts position {pos}, max_length {scheme.max_length}"
        for number in (pos, scheme.max_length):
            assert str(number) in message, f"{name} rejects position {pos} without naming {number}: {message}"


def _shapes(tokens: int) -> dict[str, tuple[int, int]]:
    heads, pairs = (tokens, HEAD_WIDTH), (tokens, tokens)
    return {
        "embed": (tokens, WIDTH),
        "encode_query": heads,
        "encode_key": heads,
        "score": pairs,
        "bias": pairs,
        "content_bias": pairs,
        "value_bias": heads,
    }


def _error_of(call: Callable[[], object]) -> str | None:
    try:
        call()
    except ValueError as error:
        return str(error)
    return None
