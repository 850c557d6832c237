"""Context parallelism: the shard of a long sequence that one process computes."""

from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Visible
from ordinate.core.tensors import need_true


@dataclass(frozen=True, eq=False)
class SequenceShard(Geometry):
    """Geometry of the tokens of one process, out of a sequence sharded over several (context parallelism).

    For token-wise layers, a shard is the geometry of its own tokens, at their positions in the sequence. Attention
    (`ordinate.attention.backends.context_parallel`) gathers the keys and values of all processes, and computes the
    queries of this one. A model needs no change to read a sequence that is too long for one device:

        shard = SequenceShard.of(Geometry.causal(tokens), rank, world)
        logits = decoder(shard.select_tokens(ids), shard)

    Under a causal mask each process has two contiguous chunks of tokens, one from the beginning and its mirror image
    from the end: early queries attend to few keys and late ones to many, so this balances the work. Otherwise it has
    one chunk.

    Build one by `of`.

    Args:
        sequence: geometry of the whole sequence; the same in every process.
        rank: rank of this process.
        world: number of processes that share the sequence.
        group: process group; None: the default group.
    Source: Grattafiori et al. 2024, The Llama 3 Herd of Models, section 3.3.2 (context parallelism),
        https://arxiv.org/abs/2407.21783.
    """

    # keyword-only fields belong to a changed copy, too
    __match_args__ = (*Geometry.__match_args__, "sequence", "rank", "world", "group")  # pyrefly: ignore[bad-override-mutable-attribute]

    sequence: Geometry = field(kw_only=True)
    rank: int = field(kw_only=True)
    world: int = field(kw_only=True)
    group: dist.ProcessGroup | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        own = self.sequence.q_pos[:, self.token_indices]
        must = "a shard must have the positions of its tokens in the sequence"
        remedy = "change the positions of the whole geometry, before SequenceShard.of"
        need(self.q_pos is self.k_pos and self.q_pos.shape == own.shape, must, "got others", remedy)
        need_true((self.q_pos == own).all(), must, "got others", remedy)

    @classmethod
    def of(cls, whole: Geometry, rank: int, world: int, group: dist.ProcessGroup | None = None) -> "SequenceShard":
        """Build the shard of one process.

        Raises:
            ValueError: a sequence that cannot be split evenly, or one that continues a KV cache.
        """
        queries, keys = whole.shape
        must, came = "only self-attention without a cache can be sharded", f"got {queries} queries, {keys} keys"
        remedy = "read the sequence without a cache"
        need(whole.start == 0 and queries == keys, must, came, remedy)
        if whole.q_pos is not whole.k_pos:
            need_true((whole.q_pos == whole.k_pos).all(), must, came, remedy)
        need(0 <= rank < world, f"ranks of {world} processes lie in 0 to {world - 1}", f"got {rank}", "count from 0")
        chunks = world * (2 if whole.is_causal else 1)
        remedy = f"pad it to {-(-queries // chunks) * chunks}"
        need(
            queries % chunks == 0,
            f"{world} processes need a sequence of {chunks} chunks of equal length",
            f"got {queries} tokens",
            remedy,
        )
        index = _indices(whole, rank, world, whole.q_pos.device)
        pos = whole.q_pos[:, index]
        document = None if whole.q_document is None else whole.q_document[:, index]
        return cls(
            pos,
            pos,
            whole.is_causal,
            0,
            whole.window,
            document,
            document,
            sequence=whole,
            rank=rank,
            world=world,
            group=group,
        )

    @property
    def chunks(self) -> list[slice]:
        """Chunks of this process, as slices of the sequence."""
        chunks = _chunks(self.sequence, self.rank, self.world)
        return [chunk for chunk in chunks if chunk.start < chunk.stop]

    @property
    def token_indices(self) -> Int[Tensor, " own"]:
        """Indices of this process's tokens in the sequence."""
        whole = self.sequence
        return _indices(whole, self.rank, self.world, whole.q_pos.device)

    def select_tokens(self, x: Shaped[Tensor, "*axes"], dim: int = 1) -> Shaped[Tensor, "*own"]:
        """Select this process's tokens of a full tensor, along the token axis."""
        return x.index_select(dim, self.token_indices.to(x.device))

    def gather(self, x: Shaped[Tensor, "*own"], dim: int = 1) -> Shaped[Tensor, "*axes"]:
        """All-gather the shards of a tensor and restore the order of the sequence.

        The backward pass reduce-scatters: gradients are summed over processes, and each gets those of its shard.
        """
        parts = [x] if self.world == 1 else list(_Gather.apply(x, self.rank, self.world, self.group))
        whole = self.sequence
        indices = [_indices(whole, rank, self.world, x.device) for rank in range(self.world)]
        return torch.cat(parts, dim).index_select(dim, torch.cat(indices).argsort())

    @property
    def is_unmasked(self) -> bool:
        """False: its queries attend to keys of other processes, too."""
        return False

    @property
    def is_plain_causal(self) -> bool:
        """False: its queries attend to keys of other processes, too."""
        return False

    @property
    def visible(self) -> Visible:
        """Not available on a shard; use `sequence.visible`."""
        self._refuse("a mask")

    def block(self, queries: slice, keys: slice | None = None) -> Geometry:
        """Not available on a shard; use `sequence.block`."""
        self._refuse("a block")

    def with_past(self, past: Geometry) -> Geometry:
        """Not available: a sharded sequence has no KV cache."""
        self._refuse("a continuation of a cache")

    def next_tokens(self, tokens: int) -> Geometry:
        """Not available: a sharded sequence has no KV cache."""
        self._refuse("its continuation")

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"keys of a sharded sequence are on other processes; a shard was asked for {what}; "
            "use mixers that support context parallelism (softmax), without a cache and without a forced backend"
        )


class _Gather(torch.autograd.Function):
    """All-gather in the forward pass, reduce-scatter (sum) of the gradients in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rank: int, world: int, group: dist.ProcessGroup | None) -> tuple[Tensor, ...]:
        ctx.rank, ctx.world, ctx.group = rank, world, group
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # by apply, so that the backward pass is itself differentiable
        return _ReduceScatter.apply(ctx.rank, ctx.world, ctx.group, *gradients), None, None, None


class _ReduceScatter(torch.autograd.Function):
    """Reduce-scatter (sum) in the forward pass, all-gather in the backward pass."""

    @staticmethod
    # pyrefly: ignore[bad-override]  (a process group is not a tensor)
    def forward(ctx: Any, rank: int, world: int, group: dist.ProcessGroup | None, *parts: Tensor) -> Tensor:
        ctx.rank, ctx.world, ctx.group = rank, world, group
        own = torch.empty_like(parts[rank], memory_format=torch.contiguous_format)
        dist.reduce_scatter(own, [part.contiguous() for part in parts], group=group)
        return own

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *_Gather.apply(grad_outputs[0], ctx.rank, ctx.world, ctx.group)


def _chunks(whole: Geometry, rank: int, world: int) -> list[slice]:
    """A process's tokens: one chunk, or two that mirror each other."""
    size = whole.shape[0] // (2 * world if whole.is_causal else world)
    chunks = (rank, 2 * world - 1 - rank) if whole.is_causal else (rank,)
    return [slice(chunk * size, (chunk + 1) * size) for chunk in chunks]


def _indices(whole: Geometry, rank: int, world: int, device: torch.device) -> Int[Tensor, " own"]:
    """Indices of a process's tokens."""
    return torch.cat([torch.arange(part.start, part.stop, device=device) for part in _chunks(whole, rank, world)])


def with_window(shard: SequenceShard) -> Geometry:
    """Return the geometry of the whole sequence, with the window of the current layer."""
    return changed(shard.sequence, window=shard.window)
