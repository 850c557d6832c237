"""How far a scheme reaches, and what it says beyond."""

from collections.abc import Callable

import torch

from ordinate.geometry import Geometry
from ordinate.scheme import Scheme
from ordinate.testing.case import HEAD_WIDTH, WIDTH, Case, marks
from ordinate.testing.check import InapplicableError

FAR = (10_000_000, 2**31 - 1)


def positions_beyond_its_length_are_refused_by_name(case: Case) -> None:
    """With both numbers, at `at` and in the hooks themselves; the last position below is served."""
    scheme = case.scheme()
    if scheme.max_length is None:
        raise InapplicableError("it serves any length")
    last = scheme.max_length - 1
    marks(scheme, case.place(Geometry.given(torch.tensor([[[last]]]))))
    for pos in (last + 1, -1):
        _check_refused(case, scheme, pos)


def any_length_means_any_length(case: Case) -> None:
    """Without a `max_length`, everything is finite at ten million tokens and at 2^31 - 1."""
    scheme = case.scheme(torch.float32)
    if scheme.max_length is not None:
        raise InapplicableError(f"it serves positions below {scheme.max_length}")
    model = case.model(torch.float32)
    for far in FAR:
        # one token near the beginning as well: distances are as long as positions
        where = case.place(Geometry.given(torch.tensor([0, 1, far - 1, far])[None, :, None]))
        for hook, out in marks(scheme, where, torch.float32).items():
            assert out.isfinite().all(), f"{hook} is not finite at position {far}"
        assert model(case.vectors(1, 4, torch.float32), where).isfinite().all(), f"output not finite at {far}"


def a_wrong_number_of_axes_is_refused(case: Case) -> None:
    """A ValueError that says how many were expected and how many came."""
    scheme = case.scheme()
    wrong = max(scheme.axes) + 1
    message = _refusal(lambda: scheme.at(Geometry.given(torch.zeros(1, 3, wrong, dtype=torch.long))))
    assert message is not None, f"it takes {wrong} axes, though it declares {scheme.axes}"
    assert f"{wrong} ax" in message, f"the refusal does not say that {wrong} axes came: {message}"


def fractional_positions_are_served_or_refused_as_declared(case: Case) -> None:
    """Served, whole numbers written as fractions mean the same; refused (`whole`), by a ValueError that says why."""
    model, x = case.model(), case.vectors(1, 4)
    whole = case.place(Geometry.given(torch.tensor([0, 3, 4, 9])[None, :, None]))
    halves = case.place(Geometry.given(torch.tensor([0.5, 3.0, 4.25, 9.0], dtype=torch.float64)[None, :, None]))
    message = _refusal(lambda: case.scheme().at(halves))
    if case.scheme().whole:
        assert message is not None, "declared whole, but it takes fractional positions"
        assert "whole" in message or "fraction" in message, f"it refuses without naming the fraction: {message}"
        return
    assert message is None, f"it refuses fractional positions without declaring whole: {message}"
    assert model(x, halves).isfinite().all(), "fractional positions give numbers that are not finite"
    written = case.place(Geometry.given(whole.q_pos.double()))
    assert model(x, written).equal(model(x, whole)), "4.0 is marked otherwise than 4"


def one_token_and_none_are_served(case: Case) -> None:
    """Inputs of length 1 and 0, and an empty batch."""
    for dtype in (torch.float32, torch.float64):
        scheme, model = case.scheme(dtype), case.model(dtype)
        for tokens in (1, 0):
            where = case.place(Geometry.causal(tokens))
            for hook, out in marks(scheme, where, dtype).items():
                rows, columns = _shapes(tokens)[hook]
                # queries and keys may become wider, both alike, which attention itself insists on
                wider = hook.startswith("encode") and out.shape[-1] > columns
                shape = (rows, out.shape[-1] if wider else columns)
                assert out.shape[-2:] == shape, f"{hook} of {tokens} tokens has shape {tuple(out.shape)}"
                assert out.isfinite().all(), f"{hook} of {tokens} tokens is not finite"
            assert model(case.vectors(2, tokens, dtype), where).shape == (2, tokens, WIDTH)
        assert model(case.vectors(0, 3, dtype), case.place(Geometry.causal(3))).shape == (0, 3, WIDTH)


def _check_refused(case: Case, scheme: Scheme, pos: int) -> None:
    where = case.place(Geometry.given(torch.tensor([[[pos]]])))
    asks: dict[str, Callable[[], object]] = {"at": lambda: scheme.at(where)}
    if "embed" in scheme.hooks:
        asks["embed"] = lambda: scheme.embed(case.vectors(1, 1), where.q_pos)
    for name, ask in asks.items():
        message = _refusal(ask)
        assert message is not None, f"{name} takes position {pos}, max_length {scheme.max_length}"
        for number in (pos, scheme.max_length):
            assert str(number) in message, f"{name} refuses position {pos} without naming {number}: {message}"


def _shapes(tokens: int) -> dict[str, tuple[int, int]]:
    heads, pairs = (tokens, HEAD_WIDTH), (tokens, tokens)
    return {
        "embed": (tokens, WIDTH),
        "encode_query": heads,
        "encode_key": heads,
        "score": pairs,
        "bias": pairs,
        "content_bias": pairs,
        "carry": heads,
    }


def _refusal(ask: Callable[[], object]) -> str | None:
    try:
        ask()
    except ValueError as error:
        return str(error)
    return None
