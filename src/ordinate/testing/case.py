"""Test case of the contract suite: a scheme class with options, inputs and a tiny model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ordinate.attention._attend import attend_encoded
from ordinate.core import catalog
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, Queries, Tokens
from ordinate.schemes._scheme import Scheme
from ordinate.testing.check import InapplicableError
from ordinate.testing.tiny_model import TinyTransformer

ModuleType = TypeVar("ModuleType", bound=nn.Module)
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
"""Sizes that a scheme may take by name, as a model provides them."""


@dataclass(frozen=True)
class SchemeCase:
    """A scheme class with its options, and inputs to test it. Deterministic: all seeds are fixed.

    Args:
        kind: the class.
        options: constructor arguments besides the sizes.
    """

    kind: type[Scheme]
    options: Mapping[str, Any] = field(default_factory=dict)

    def scheme(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Scheme:
        """Build an instance with perturbed parameters: tables initialised to zero would pass every check."""
        return with_noise(lambda: self.kind(**catalog.bind(self.kind, self.options, SIZES)), seed).to(dtype)

    def model(self, dtype: torch.dtype = torch.float64) -> TinyTransformer:
        """Build a tiny transformer with the scheme and grouped-query attention."""
        schemes = [self.scheme(dtype) for _ in range(LAYERS if self.scheme().per_layer else 1)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            tiny = TinyTransformer(schemes, width=WIDTH, heads=HEADS, kv_heads=KV_HEADS, layers=LAYERS).to(dtype)
        return tiny.eval()

    def embeddings(self, batch: int, tokens: int, dtype: torch.dtype = torch.float64) -> Tokens:
        """Return random token embeddings, without the columns that the scheme appends."""
        return _noise(2, batch, tokens, WIDTH - self.scheme().appended_width).to(dtype)

    def with_axes(self, where: Geometry) -> Geometry:
        """Expand the positions of a geometry to the number of axes of the scheme, with equal coordinates."""
        served = self.scheme().axes
        axes = 1 if 1 in served else served[0]
        q_pos, k_pos = (pos.expand(-1, -1, axes) for pos in (where.q_pos, where.k_pos))
        return replace(where, q_pos=q_pos, k_pos=k_pos)

    def skip_unless_hook(self, *hooks: str) -> None:
        """Skip the check unless the scheme uses one of these hooks."""
        used = self.scheme().hooks
        if not set(hooks) & set(used):
            raise InapplicableError(f"it overrides {', '.join(used) or 'no hook'}, not {' or '.join(hooks)}")


def with_noise(build: Callable[[], ModuleType], seed: int) -> ModuleType:
    """Build a module and add noise to its parameters; they are the same on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build()
        if torch.get_default_device().type not in ("cpu", "meta"):
            # each device draws other numbers
            with torch.device("cpu"):
                torch.manual_seed(seed)
                module.load_state_dict(build().state_dict())
        with torch.no_grad():
            for parameter in module.parameters():
                noise = torch.randn(parameter.shape, dtype=parameter.dtype, device="cpu")
                parameter.add_(0.1 * noise.to(parameter.device))
    return module


def check_reset(build: Callable[[], ModuleType]) -> None:
    """Raise unless `reset_parameters` fills a module whose memory is empty with the values of a new one."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(7)
        new, module = build(), build()
        for parameter in module.parameters():
            nn.init.constant_(parameter, math.nan)
        torch.manual_seed(7)
        cast(Any, module).reset_parameters()
    for (name, own), other in zip(module.named_parameters(), new.parameters(), strict=True):
        assert own.equal(other), f"{name} is not that of a new instance after reset_parameters"


def random_qkv(batch: int, tokens: int, dtype: torch.dtype = torch.float64) -> tuple[Queries, Keys, Keys]:
    """Return random queries, keys and values, with fewer key heads than query heads."""
    shapes = (HEADS, KV_HEADS, KV_HEADS)
    q, k, v = (_noise(3 + place, batch, heads, tokens, HEAD_WIDTH).to(dtype) for place, heads in enumerate(shapes))
    return q, k, v


def attention(scheme: Scheme, q: Queries, k: Keys, v: Keys, where: Geometry) -> Queries:
    """Compute attention for a geometry by the reference backend."""
    at = scheme.at(where)
    return attend_encoded(at.encode_all(q, k), v, at, backend="reference")


def hook_outputs(scheme: Scheme, where: Geometry, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Return the output of each hook in use for fixed random inputs."""
    at, rows, tokens = scheme.at(where), where.q_pos.shape[0], where.shape[0]
    q, k, _ = random_qkv(rows, tokens, dtype)
    x = _noise(2, rows, tokens, WIDTH - scheme.appended_width).to(dtype)
    weights = _noise(6, rows, HEADS, *where.shape).softmax(-1).to(dtype)
    full = k.repeat_interleave(HEADS // KV_HEADS, 1)
    made: dict[str, Callable[[], Tensor | None]] = {
        "embed": lambda: at.embed(x),
        "encode_query": lambda: scheme.encode_query(q, where.q_pos),
        "encode_key": lambda: scheme.encode_key(k, where.q_pos),
        "score": lambda: scheme.score(q, full, where),
        "bias": lambda: scheme.bias(where),
        "content_bias": lambda: scheme.content_bias(q, full, where),
        "value_bias": lambda: scheme.value_bias(weights, where),
    }
    results = ((hook, made[hook]()) for hook in scheme.hooks if hook in made)
    return {hook: marked for hook, marked in results if marked is not None}


def _noise(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    # the same numbers on every device
    drawn = torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")
    return drawn.to(torch.get_default_device())
