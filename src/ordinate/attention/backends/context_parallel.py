"""Context parallelism: gather keys and values of all processes, compute the queries of this one."""

from dataclasses import replace

import torch

from ordinate.attention._backend import AttentionCall, Backend, backends
from ordinate.core.sequence_shard import SequenceShard, with_window
from ordinate.core.shapes import LogSumExp, Outputs
from ordinate.ops.blocks import visible_keys
from ordinate.schemes._scheme import Placed, Scheme

# hooks that must be called with all keys
ALL_KEYS_HOOKS = frozenset({"score", "content_bias", "value_bias"})


class ContextParallel(Backend):
    """Attention over a sequence sharded by `SequenceShard`: keys and values are all-gathered, queries stay local.

    Each chunk of this process's queries is a block of the whole geometry, computed by the first other backend that
    supports it. Keys and values of all processes are held meanwhile: O(n) per layer, where queries, outputs and
    everything else of a model are O(n / processes).
    """

    priority = 10
    supported_options = frozenset({"softcap", "sinks", "normaliser"})
    # the backend that computes a chunk is chosen anew
    supports_transforms = True

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject geometries that are not sharded."""
        return None if isinstance(call.where, SequenceShard) else "the sequence is not sharded"

    def run(self, call: AttentionCall) -> Outputs:
        """Compute attention of this process's queries."""
        return torch.cat([_backend(part).run(part) for part in _parts(call)], 2)

    def run_with_lse(self, call: AttentionCall) -> tuple[Outputs, LogSumExp]:
        """Compute attention and log-sum-exp of this process's queries."""
        out, totals = zip(*[_backend(part).run_with_lse(part) for part in _parts(call)], strict=True)
        return torch.cat(out, 2), torch.cat(totals, 2)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Keys and values of all processes; the workspace of the backends that compute the chunks comes on top."""
        world = call.where.world if isinstance(call.where, SequenceShard) else 1
        return world * (call.k.numel() + call.v.numel()) * call.k.element_size()


def _parts(call: AttentionCall) -> list[AttentionCall]:
    """Build a call for each chunk of this process's queries."""
    shard = call.where
    if not isinstance(shard, SequenceShard):
        return [call]
    k, v = shard.gather(call.k, 2), shard.gather(call.v, 2)
    found, begin = [], 0
    for rows in shard.chunks:
        end = begin + rows.stop - rows.start
        placed, keys = call.at.cached(("run", rows.start), lambda rows=rows: _place(call.at.scheme, shard, rows))
        found.append(
            replace(call, q=call.q[:, :, begin:end], k=k[:, :, keys], v=v[:, :, keys], at=placed, max_key_norm=None)
        )
        begin = end
    return found


def _place(scheme: Scheme, shard: SequenceShard, rows: slice) -> tuple[Placed, slice]:
    """Return the scheme placed at a chunk of queries and the keys within their reach, and the range of these keys."""
    whole = with_window(shard)
    keys = slice(None) if ALL_KEYS_HOOKS & set(scheme.hooks) else visible_keys(whole, rows.start, rows.stop)
    return Placed(scheme, whole.block(rows, keys)), keys


def _backend(call: AttentionCall) -> Backend:
    return next(backend for backend in backends().values() if backend.unsupported_reason(call) is None)
