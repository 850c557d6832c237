"""A scheme class in the hands of the contract suite."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ordinate import catalog
from ordinate.attention import attend
from ordinate.geometry import Geometry
from ordinate.scheme import Scheme
from ordinate.shapes import Keys, Queries, Tokens
from ordinate.testing.check import InapplicableError
from ordinate.testing.tiny import Tiny

WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, LAYERS, MAX_LENGTH = 32, 4, 2, 8, 2, 64
SIZES: Mapping[str, Any] = {
    "width": WIDTH,
    "heads": HEADS,
    "kv_heads": KV_HEADS,
    "head_width": HEAD_WIDTH,
    "layers": LAYERS,
    "scale": 1.0,
    "dropout": 0.0,
    "max_length": MAX_LENGTH,
}
"""What a scheme of the suite may ask for by name."""


@dataclass(frozen=True)
class Case:
    """One scheme class with its options, and what it takes to try it out. The same every time: all seeds are fixed.

    Args:
        kind: the class.
        options: what to construct it with beside the sizes.
    """

    kind: type[Scheme]
    options: Mapping[str, Any] = field(default_factory=dict)

    def scheme(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Scheme:
        """An instance whose parameters were stirred: one born at zero would pass for anything."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            scheme = self.kind(**catalog.bind(self.kind, self.options, SIZES))
            with torch.no_grad():
                for parameter in scheme.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return scheme.to(dtype)

    def model(self, dtype: torch.dtype = torch.float64) -> Tiny:
        """A tiny causal transformer around the scheme, with grouped heads."""
        schemes = [self.scheme(dtype) for _ in range(LAYERS if self.scheme().per_layer else 1)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            tiny = Tiny(schemes, width=WIDTH, heads=HEADS, kv_heads=KV_HEADS, layers=LAYERS).to(dtype)
        return tiny.eval()

    def vectors(self, batch: int, tokens: int, dtype: torch.dtype = torch.float64) -> Tokens:
        """Token vectors, as wide as the scheme leaves them."""
        return _noise(2, batch, tokens, WIDTH - self.scheme().claims).to(dtype)

    def place(self, where: Geometry) -> Geometry:
        """The same geometry with as many position axes as the scheme takes (all of them alike)."""
        served = self.scheme().axes
        axes = 1 if 1 in served else served[0]
        q_pos, k_pos = (pos.expand(-1, -1, axes) for pos in (where.q_pos, where.k_pos))
        return replace(where, q_pos=q_pos, k_pos=k_pos)

    def need_hook(self, *hooks: str) -> None:
        """Skip the check unless the scheme overrides one of these hooks."""
        used = self.scheme().hooks
        if not set(hooks) & set(used):
            raise InapplicableError(f"it overrides {', '.join(used) or 'no hook'}, not {' or '.join(hooks)}")


def drawn(batch: int, tokens: int, dtype: torch.dtype = torch.float64) -> tuple[Queries, Keys, Keys]:
    """Queries, keys and values, with fewer heads of keys than of queries."""
    shapes = (HEADS, KV_HEADS, KV_HEADS)
    q, k, v = (_noise(3 + place, batch, heads, tokens, HEAD_WIDTH).to(dtype) for place, heads in enumerate(shapes))
    return q, k, v


def attention(scheme: Scheme, q: Queries, k: Keys, v: Keys, where: Geometry) -> Queries:
    """Attention among the tokens of a geometry, by the reference route."""
    at = scheme.at(where)
    return attend(*at.encode(q, k), v, at, route="reference")


def marks(scheme: Scheme, where: Geometry, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """What each hook that the scheme overrides makes of the same fixed inputs."""
    at, rows, tokens = scheme.at(where), where.q_pos.shape[0], where.shape[0]
    q, k, _ = drawn(rows, tokens, dtype)
    x = _noise(2, rows, tokens, WIDTH - scheme.claims).to(dtype)
    weights = _noise(6, rows, HEADS, *where.shape).softmax(-1).to(dtype)
    full = k.repeat_interleave(HEADS // KV_HEADS, 1)
    made: dict[str, Callable[[], Tensor | None]] = {
        "embed": lambda: at.embed(x),
        "encode_query": lambda: scheme.encode_query(q, where.q_pos),
        "encode_key": lambda: scheme.encode_key(k, where.q_pos),
        "score": lambda: scheme.score(q, full, where),
        "bias": lambda: scheme.bias(where),
        "content_bias": lambda: scheme.content_bias(q, full, where),
        "carry": lambda: scheme.carry(weights, where),
    }
    results = ((hook, made[hook]()) for hook in scheme.hooks if hook in made)
    return {hook: marked for hook, marked in results if marked is not None}


def _noise(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
