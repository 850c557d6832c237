"""A matrix that tokens correct: what stands at one address is read, and the difference is written at another.

    S_t = diag(e^{w_t}) S_{t-1} + b_t^T (a_t S_{t-1}) + k_t^T v_t,     y_t = r_t S_t

With b = -a this is the delta rule: what stood at a is erased, and v written at k. Inside a chunk all a_t S_{t-1} are
the solution of one triangular system (the WY form); between chunks the state goes on.
"""

import torch

from ordinate.native import recurrence
from ordinate.native.recurrence import Matrices
from ordinate.native.scan import need_shapes, refuses
from ordinate.ops.decay import carried, earlier_products, in_chunks, sums_after, sums_before
from ordinate.shapes import Outputs, Queries


def corrected(
    r: Queries, k: Queries, v: Outputs, w: Queries, a: Queries, b: Queries, start: Matrices
) -> tuple[Outputs, Matrices]:
    """What each token reads, and the state to go on from.

    Args:
        r: what asks, in float32 at least, as all others.
        k: where it is written to; 0 for a token that is not there.
        v: what is written.
        w: the logarithms of what is kept of each channel, below zero.
        a: where the state is read before it is changed; 0 for a token that is not there.
        b: where what was read there is written to.
        start: the state after the tokens before; zeros: there are none.
    """
    batch, heads, tokens, width = r.shape
    need_shapes(
        **{name: (x, r.shape) for name, x in (("k", k), ("w", w), ("a", a), ("b", b))},
        v=(v, (batch, heads, tokens, v.shape[-1])),
        start=(start, (batch, heads, width, v.shape[-1])),
    )
    # one pass in C++ where there is a compiler: the same to rounding
    if refuses("recurrence", r, k, v, w, a, b, start) is None:
        return recurrence.corrected(r, k, v, w, a, b, start)
    # the digits are needed, whatever autocast says
    with torch.autocast(r.device.type, enabled=False):
        asks, keys, values, logs, seen, moved = (in_chunks(x) for x in (r, k, v, w, a, b))
        decay_before, left = torch.exp(sums_before(logs)), torch.exp(sums_after(logs))
        # a token reads after it has written: what was there before has decayed once more
        late = asks * torch.exp(logs)
        products = earlier_products(torch.stack([seen, late]), torch.stack([moved, keys]), logs)
        own = [torch.diag_embed((asks * x).sum(-1)) for x in (moved, keys)]
        (seen_moved, seen_keys), (asks_moved, asks_keys) = products[0], products[1] + torch.stack(own)
        # what each token sees: of the state before the chunk, and of the chunk itself
        known = torch.cat([seen * decay_before, seen_keys @ values], -1)
        solved = torch.linalg.solve_triangular(-seen_moved, known, upper=False, unitriangular=True)
        of_state, of_chunk = solved.split([k.shape[3], v.shape[3]], -1)
        kept = torch.diag_embed(torch.exp(logs.sum(3))) + (moved * left).mT @ of_state
        states, last = carried(start, kept, (moved * left).mT @ of_chunk + (keys * left).mT @ values)
        saw = of_state @ states + of_chunk
        y = (late * decay_before) @ states + asks_moved @ saw + asks_keys @ values
        return y.flatten(2, 3)[:, :, : v.shape[2]], last
