"""A part of a long sequence, on one of several processes: context parallelism by positions as data."""

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor

from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.shapes import Visible


@dataclass(frozen=True, eq=False)
class Shard(Geometry):
    """Where the tokens of one process stand, out of a sequence that several processes share.

    To everything that looks at tokens one by one, a shard is the geometry of its own tokens, at their own positions.
    Attention (`ordinate.routes.shared`) gathers the keys and values of all processes, and computes the rows of this
    one. So a model reads a sequence that is too long for one device without knowing of it:

        shard = Shard.of(Geometry.causal(tokens), rank, world)
        logits = decoder(shard.take(ids), shard)

    Under causality each process has two runs of tokens, one from the beginning and its mirror image from the end:
    early rows see few keys and late rows many, so all have the same work. Otherwise it has one run.

    Build one by `of`.

    Args:
        whole: the sequence; the same in every process.
        rank: which process this is.
        world: how many share the sequence.
        group: the processes; None: all that have met.
    Source: Grattafiori et al. 2024, The Llama 3 Herd of Models, section 3.3.2 (context parallelism),
        https://arxiv.org/abs/2407.21783.
    """

    whole: Geometry = field(kw_only=True)
    rank: int = field(kw_only=True)
    world: int = field(kw_only=True)
    group: dist.ProcessGroup | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        own = self.whole.q_pos[:, self.index]
        same = self.q_pos is self.k_pos and self.q_pos.shape == own.shape and bool((self.q_pos == own).all())
        need(
            same, "a shard has the positions of its own tokens", "got others", "move the tokens before you share them"
        )

    @classmethod
    def of(cls, whole: Geometry, rank: int, world: int, group: dist.ProcessGroup | None = None) -> "Shard":
        """The shard of one process.

        Raises:
            ValueError: a sequence that cannot be shared out evenly, or one that goes on from a cache.
        """
        queries, keys = whole.shape
        alike = whole.start == 0 and queries == keys and bool((whole.q_pos == whole.k_pos).all())
        need(alike, "a shared sequence is whole", f"got {queries} queries, {keys} keys", "read it without a cache")
        need(0 <= rank < world, f"ranks of {world} processes lie in 0 to {world - 1}", f"got {rank}", "count from 0")
        runs = world * (2 if whole.hides_future else 1)
        remedy = f"pad it to {-(-queries // runs) * runs}"
        need(
            queries % runs == 0,
            f"{world} processes share {runs} runs of equal length",
            f"got {queries} tokens",
            remedy,
        )
        index = torch.cat(_runs(queries, rank, world, whole.hides_future, whole.q_pos.device))
        pos = whole.q_pos[:, index]
        document = None if whole.q_document is None else whole.q_document[:, index]
        return cls(
            pos,
            pos,
            whole.hides_future,
            0,
            whole.window,
            document,
            document,
            whole=whole,
            rank=rank,
            world=world,
            group=group,
        )

    @property
    def parts(self) -> list[slice]:
        """The runs of tokens of this process, in the places of the sequence."""
        runs = _runs(self.whole.shape[0], self.rank, self.world, self.whole.hides_future, torch.device("cpu"))
        return [slice(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]

    @property
    def index(self) -> Int[Tensor, " own"]:
        """The places of this process's tokens in the sequence."""
        whole = self.whole
        return torch.cat(_runs(whole.shape[0], self.rank, self.world, whole.hides_future, whole.q_pos.device))

    def take(self, x: Shaped[Tensor, "*axes"], dim: int = 1) -> Shaped[Tensor, "*own"]:
        """The part of this process of something that every process has whole, along the axis of tokens."""
        return x.index_select(dim, self.index.to(x.device))

    def gather(self, x: Shaped[Tensor, "*own"], dim: int = 1) -> Shaped[Tensor, "*axes"]:
        """What every process has its part of, put together in the order of the sequence, for all of them.

        The way back adds up what the processes make of it, and gives each the part that is its own.
        """
        parts = [x] if self.world == 1 else list(_Gather.apply(x, self.rank, self.world, self.group))
        whole = self.whole
        places = [
            torch.cat(_runs(whole.shape[0], rank, self.world, whole.hides_future, x.device))
            for rank in range(self.world)
        ]
        return torch.cat(parts, dim).index_select(dim, torch.cat(places).argsort())

    @property
    def sees_all(self) -> bool:
        """Not among its own tokens alone."""
        return False

    @property
    def plain_causal(self) -> bool:
        """Not among its own tokens alone."""
        return False

    @property
    def visible(self) -> Visible:
        """Asked of `whole`."""
        self._refuse("who sees whom")

    def block(self, queries: slice, keys: slice = slice(None)) -> Geometry:
        """Asked of `whole`."""
        self._refuse("a block")

    def after(self, past: Geometry) -> Geometry:
        """There is no cache of a shared sequence."""
        self._refuse("what comes after a cache")

    def following(self, tokens: int) -> Geometry:
        """There is no cache of a shared sequence."""
        self._refuse("what follows")

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"keys of a shared sequence are with other processes; a shard was asked for {what}; "
            "use mixers that attend to all of it (softmax), without a cache and without a forced route"
        )


class _Gather(torch.autograd.Function):
    """Every process gets the parts of all; on the way back the sum over processes of what is its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rank: int, world: int, group: dist.ProcessGroup | None) -> tuple[Tensor, ...]:
        ctx.rank, ctx.group = rank, group
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        own = torch.empty_like(gradients[ctx.rank], memory_format=torch.contiguous_format)
        dist.reduce_scatter(own, [part.contiguous() for part in gradients], group=ctx.group)
        return own, None, None, None


def _runs(tokens: int, rank: int, world: int, mirrored: bool, device: torch.device) -> list[Int[Tensor, " run"]]:
    """The places of a process's tokens: one run of them, or two that mirror each other."""
    if not mirrored:
        size = tokens // world
        return [torch.arange(rank * size, (rank + 1) * size, device=device)]
    size = tokens // (2 * world)
    return [torch.arange(run * size, (run + 1) * size, device=device) for run in (rank, 2 * world - 1 - rank)]


def with_window(shard: Shard) -> Geometry:
    """The whole sequence with the window of the layer that looks at it."""
    return replace(shard.whole, window=shard.window)
