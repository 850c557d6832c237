"""Context parallelism: gather keys and values of all processes, compute the queries of this one."""

import torch

from ordinate.attention._backend import AttentionCall, Backend, backends
from ordinate.core.records import changed
from ordinate.core.sequence_shard import SequenceShard, with_window
from ordinate.core.shapes import Keys, LogSumExp, Outputs, Values
from ordinate.ops.blocks import visible_keys
from ordinate.schemes._held import apart
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
        """Keys and values of all processes, and the largest workspace of the backends that compute the chunks.

        The chunks' outputs are held until they are joined. While keys are gathered, their pieces are held, too, which
        is not counted.
        """
        if not isinstance(call.where, SequenceShard):
            return 0
        # nothing is gathered here, which all processes would have to do: zeros, which take no memory, stand for it
        k, v = (
            x.new_zeros(1).expand(*x.shape[:2], call.where.world * x.shape[2], x.shape[3]) for x in (call.k, call.v)
        )
        parts = _calls(call, call.where, k, v)
        out = call.v.element_size() * call.q.shape[:3].numel() * call.v.shape[3]
        gathered = call.where.world * (call.k.numel() + call.v.numel()) * call.k.element_size()
        copies = (changed(part, at=apart(part.at)) for part in parts)
        return gathered + max(out, *(_backend(x).workspace_bytes(y) for x, y in zip(copies, parts, strict=True)))


def _parts(call: AttentionCall) -> list[AttentionCall]:
    """Build a call for each chunk of this process's queries."""
    shard = call.where
    if not isinstance(shard, SequenceShard):
        return [call]
    return _calls(call, shard, shard.gather(call.k, 2), shard.gather(call.v, 2))


def _calls(call: AttentionCall, shard: SequenceShard, k: Keys, v: Values) -> list[AttentionCall]:
    found, begin = [], 0
    for rows in shard.chunks:
        end = begin + rows.stop - rows.start
        placed, keys = call.at.cached(("run", rows.start), lambda rows=rows: _place(call.at.scheme, shard, rows))
        found.append(
            changed(call, q=call.q[:, :, begin:end], k=k[:, :, keys], v=v[:, :, keys], at=placed, max_key_norm=None)
        )
        begin = end
    return found


def _place(scheme: Scheme, shard: SequenceShard, rows: slice) -> tuple[Placed, slice]:
    """Return the scheme placed at a chunk of queries and the keys within their reach, and the range of these keys."""
    whole = with_window(shard)
    keys = slice(None) if ALL_KEYS_HOOKS & set(scheme.hooks) else visible_keys(whole, rows.start, rows.stop)
    return Placed(scheme, whole.block(rows, keys)), keys


def _backend(call: AttentionCall) -> Backend:
    return next(backend for backend in backends().values() if backend.skipped_reason(call) is None)
