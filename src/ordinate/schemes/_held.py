"""Copies of a placed scheme that hold what it holds already, and leave it as it is."""

import copy

from ordinate.schemes._scheme import Placed


def apart(at: Placed) -> Placed:
    """Return a copy that holds what this one holds, and keeps to itself what it computes."""
    other = copy.copy(at)
    vars(other).update(vars(at), _made=dict(at._made))
    return other


def rows_of(at: Placed, queries: slice) -> Placed:
    """Bind the scheme to a block of the queries; of bias and mask it has the rows that this one holds."""
    block = at.block(queries)
    held = {key: x for key, x in at._made.items() if isinstance(key, tuple) and key[0] in ("bias", "mask")}
    block._made = {key: None if x is None else x[:, :, queries] for key, x in held.items()}
    return block
