"""What a scheme says offset by offset is what it says pair by pair."""

import torch

from ordinate.geometry import Geometry
from ordinate.ops.blocks import along
from ordinate.testing.case import HEADS, KV_HEADS, Case, drawn
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close

TOKENS = 40


def its_vectors_say_what_content_bias_and_carry_say(case: Case) -> None:
    """Queries, keys and weights that meet the vectors of their offsets give the same; so does the reach."""
    case.need_hook("content_bias", "carry")
    scheme = case.scheme()
    for where in (Geometry.causal(TOKENS), Geometry.full(TOKENS)):
        where = case.place(where)
        made = scheme.vectors(along(where, 0, 2 * TOKENS - 1))
        if made is None:
            raise InapplicableError("it has no vector for each offset")
        offset = TOKENS - 1 - torch.arange(2 * TOKENS - 1)
        # beyond the reach one vector stands for all on its side
        beyond = torch.where(offset > 0, 0, 2 * TOKENS - 2)
        entry = torch.where(offset.abs() >= made.reach, beyond, torch.arange(2 * TOKENS - 1))
        entry = entry[torch.arange(TOKENS) - torch.arange(TOKENS)[:, None] + TOKENS - 1]
        q, k, v = drawn(1, TOKENS)
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
        asked, held, carried = (
            None if x is None else x.expand(HEADS, 2 * TOKENS - 1, -1)[:, entry]
            for x in (made.asked, made.held, made.carried)
        )
        found = torch.zeros(1, HEADS, TOKENS, TOKENS, dtype=q.dtype)
        found = found if asked is None else found + torch.einsum("bhid,hijd->bhij", q, asked)
        found = found if held is None else found + torch.einsum("bhjd,hijd->bhij", k, held)
        found = found if made.number is None else found + made.number.expand(HEADS, -1)[:, entry]
        weights, seen = (q @ k.mT).softmax(-1), where.visible[:, None]
        exact = scheme.content_bias(q, k, where)
        if exact is not None:
            assert_as_close(found * seen, exact * seen, exact * seen, what="the content bias of its vectors")
        exact = scheme.carry(weights * seen, where)
        if exact is not None:
            assert carried is not None, "it carries values that its vectors do not have"
            found = torch.einsum("bhij,hije->bhie", weights * seen, carried)
            assert_as_close(found, exact, exact, what="what its vectors carry")
