"""Sequences that several processes share: keys and values are gathered, each process computes its own rows."""

from dataclasses import replace

import torch

from ordinate.ops.blocks import reachable
from ordinate.route import Call, Route, routes
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Outputs, Totals
from ordinate.shard import Shard, with_window

# hooks that are asked with all keys
CONTENT = frozenset({"score", "content_bias", "carry"})


class Shared(Route):
    """A run of rows is a block of the sequence's geometry, with the keys that it can see: attention like any other.

    Which route computes a run is chosen as everywhere. Keys and values of all processes are held while that lasts:
    O(n) of them for each layer, where queries, outputs and everything else of a model are O(n / processes).
    """

    order = 10
    serves = frozenset({"cap", "sinks", "weights"})

    def refuses(self, call: Call) -> str | None:
        """What one process has whole."""
        return None if isinstance(call.where, Shard) else "one process has the whole sequence"

    def run(self, call: Call) -> Outputs:
        """The rows of this process."""
        return torch.cat([_route(part).run(part) for part in _parts(call)], 2)

    def run_with_lse(self, call: Call) -> tuple[Outputs, Totals]:
        """The same with each query's log-sum-exp."""
        out, totals = zip(*[_route(part).run_with_lse(part) for part in _parts(call)], strict=True)
        return torch.cat(out, 2), torch.cat(totals, 2)

    def bytes(self, call: Call) -> int:
        """Keys and values of the other processes; what the rows need beside them is that of their own routes."""
        world = call.where.world if isinstance(call.where, Shard) else 1
        return world * (call.k.numel() + call.v.numel()) * call.k.element_size()


def _parts(call: Call) -> list[Call]:
    """A call for each run of this process's rows."""
    shard = call.where
    if not isinstance(shard, Shard):
        return [call]
    k, v = shard.gather(call.k, 2), shard.gather(call.v, 2)
    found, begin = [], 0
    for rows in shard.parts:
        end = begin + rows.stop - rows.start
        placed, keys = call.at.once(("run", rows.start), lambda rows=rows: _place(call.at.scheme, shard, rows))
        found.append(
            replace(call, q=call.q[:, :, begin:end], k=k[:, :, keys], v=v[:, :, keys], at=placed, longest=None)
        )
        begin = end
    return found


def _place(scheme: Scheme, shard: Shard, rows: slice) -> tuple[Placed, slice]:
    """The scheme at a run of rows and the keys that they can see, and which keys these are."""
    whole = with_window(shard)
    keys = slice(None) if CONTENT & set(scheme.hooks) else reachable(whole, rows.start, rows.stop)
    return Placed(scheme, whole.block(rows, keys)), keys


def _route(call: Call) -> Route:
    return next(route for route in routes().values() if route.refusal(call) is None)
