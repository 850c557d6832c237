"""Whether moving all positions by a constant changes anything, as declared."""

from dataclasses import replace

import torch

from ordinate.geometry import Geometry
from ordinate.testing.case import Case
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close

SHIFTS = (1, 50, 1000, 32_768, 2**24 + 1)
TOKENS = 7


def moving_all_positions_changes_something_exactly_if_declared(case: Case) -> None:
    """`shift_invariant` is measured both ways, in float64, by shifts of up to 2^24 + 1 tokens."""
    model, x = case.model(), case.vectors(2, TOKENS)
    where = case.place(Geometry.causal(TOKENS))
    limit = case.scheme().max_length
    still = model(x, where)
    scale = still.abs().max().item()
    moved = {}
    for shift in SHIFTS:
        if limit is None or shift + TOKENS <= limit:
            there = replace(where, q_pos=where.q_pos + shift, k_pos=where.k_pos + shift)
            moved[shift] = (model(x, there) - still).abs().max().item() / scale
    if case.scheme().shift_invariant:
        # angles in float64 leave 2e-9 at 2^24, angles in float32 whole radians
        broken = {shift: change for shift, change in moved.items() if not change <= 1e-8}
        assert not broken, f"declared shift invariant, but a shift changes the output (shift: share): {broken}"
    else:
        assert any(change > 1e-6 for change in moved.values()), "declared to feel shifts, but none changes the output"


def a_shift_costs_no_precision_in_the_type_of_the_model(case: Case) -> None:
    """What a shift changes in float32 and bfloat16 does not grow with the shift beyond what rounding explains."""
    if not case.scheme().shift_invariant or case.scheme().max_length is not None:
        raise InapplicableError("it is not shift invariant, or serves a limited length")
    for dtype, allowed in ((torch.float32, 2e-5), (torch.bfloat16, 6e-2)):
        model, x = case.model(dtype), case.vectors(2, TOKENS, dtype)
        where = case.place(Geometry.causal(TOKENS))
        still = model(x, where).double()
        for shift in SHIFTS:
            there = replace(where, q_pos=where.q_pos + shift, k_pos=where.k_pos + shift)
            change = ((model(x, there).double() - still).abs().max() / still.abs().max()).item()
            assert change <= allowed, f"{dtype}: a shift by {shift} changes the output by {change:.2g} of its size"


def the_bias_of_a_shift_invariant_scheme_is_a_table_of_offsets(case: Case) -> None:
    """Pairs as far apart have one bias wherever they stand, so that a table of offsets can stand in for the whole."""
    case.need_hook("bias")
    if not case.kind.shift_invariant:
        raise InapplicableError("it is not shift invariant")
    for where in (Geometry.causal(TOKENS), Geometry.full(TOKENS), Geometry.cross(TOKENS, 3)):
        bias = case.scheme().bias(case.place(where))
        if bias is not None:
            before, after = bias[..., :-1, :-1], bias[..., 1:, 1:]
            seen = where.visible[0, 1:, 1:]
            before, after = (x.masked_fill(~seen, 0.0) for x in (before, after))
            assert_as_close(after, before, before.double(), what="the bias of the next pair as far apart")
