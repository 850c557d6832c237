"""Shift invariance, as declared."""

from dataclasses import replace

import torch

from ordinate.core.geometry import Geometry
from ordinate.testing.case import SchemeCase
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close

SHIFTS = (1, 50, 1000, 32_768, 2**24 + 1)
TOKENS = 7


def shift_invariance_is_as_declared(case: SchemeCase) -> None:
    """Adding a constant of up to 2^24 + 1 to all positions changes the output in float64 unless `shift_invariant`."""
    model, x = case.model(), case.embeddings(2, TOKENS)
    where = case.with_axes(Geometry.causal(TOKENS))
    limit = case.scheme().max_length
    still = model(x, where)
    scale = still.abs().max().item()
    moved = {}
    for shift in SHIFTS:
        if limit is None or shift + TOKENS <= limit:
            there = replace(where, q_pos=where.q_pos + shift, k_pos=where.k_pos + shift)
            moved[shift] = (model(x, there) - still).abs().max().item() / scale
    if case.scheme().shift_invariant:
        # at 2^24, angles in float64 have errors of 2e-9, angles in float32 of radians
        broken = {shift: change for shift, change in moved.items() if not change <= 1e-8}
        assert not broken, (
            f"declared shift invariant, but shifts change the output (shift: relative change): {broken}"
        )
    else:
        changed = any(change > 1e-6 for change in moved.values())
        assert changed, "not declared shift invariant, but no shift changes the output"


def a_shift_of_positions_loses_no_precision(case: SchemeCase) -> None:
    """The change by a shift in float32 and bfloat16 stays within rounding errors for shifts of any size."""
    if not case.scheme().shift_invariant or case.scheme().max_length is not None:
        raise InapplicableError("it is not shift invariant, or supports a limited length")
    for dtype, allowed in ((torch.float32, 2e-5), (torch.bfloat16, 6e-2)):
        model, x = case.model(dtype), case.embeddings(2, TOKENS, dtype)
        where = case.with_axes(Geometry.causal(TOKENS))
        still = model(x, where).double()
        for shift in SHIFTS:
            there = replace(where, q_pos=where.q_pos + shift, k_pos=where.k_pos + shift)
            change = ((model(x, there).double() - still).abs().max() / still.abs().max()).item()
            assert change <= allowed, f"{dtype}: a shift by {shift} changes the output by {change:.2g} of its size"


def a_shift_invariant_bias_depends_on_offsets_only(case: SchemeCase) -> None:
    """Pairs with equal offsets have equal biases, so a table over offsets can replace the matrix."""
    case.skip_unless_hook("bias")
    if not case.scheme().shift_invariant:
        raise InapplicableError("it is not shift invariant")
    for where in (Geometry.causal(TOKENS), Geometry.full(TOKENS), Geometry.cross(TOKENS, 3)):
        bias = case.scheme().bias(case.with_axes(where))
        if bias is not None:
            before, after = bias[..., :-1, :-1], bias[..., 1:, 1:]
            seen = where.visible[0, 1:, 1:]
            before, after = (x.masked_fill(~seen, 0.0) for x in (before, after))
            assert_as_close(after, before, before.double(), what="the bias of the next pair with the same offset")
