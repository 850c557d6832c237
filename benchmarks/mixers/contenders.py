"""Mixers of public packages, as modules from tokens to tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness.workload import HEAD_WIDTH, HEADS, WIDTH, Work
from benchmarks.mixers.members import Size, trained

Build = Callable[[Size], nn.Module]


@dataclass(frozen=True)
class Contender:
    """A mixer of another package.

    Args:
        package: import name of the package.
        ours: our mixer that it is compared with.
        build: builds the module.
    """

    package: str
    ours: str
    build: Build

    @property
    def there(self) -> bool:
        """Whether the package is installed."""
        return find_spec(self.package) is not None

    def prepare(self, size: Size, learn: bool) -> Work:
        """Build it with a pass over random tokens."""
        torch.manual_seed(1)
        module, x = self.build(size), size.draw(size.tokens, WIDTH, learn=learn)
        return lambda: module(x), [x, *trained(module)]


class Projected(nn.Module):
    """Multi-head attention with query, key, value and output projections around a given kernel."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        """Project, attend, project back."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


def performer(size: Size) -> nn.Module:
    """performer-pytorch, causal, with its usual number of features."""
    from performer_pytorch import FastAttention

    return Projected(FastAttention(HEAD_WIDTH, causal=True))


def linformer(size: Size) -> nn.Module:
    """linformer, with its usual 256 summaries."""
    from linformer import LinformerSelfAttention

    return LinformerSelfAttention(WIDTH, size.tokens, k=256, heads=HEADS)


def reformer(size: Size) -> nn.Module:
    """reformer-pytorch, causal, with buckets of 64 and as many rounds as ours."""
    from reformer_pytorch import LSHSelfAttention

    return LSHSelfAttention(WIDTH, heads=HEADS, bucket_size=64, n_hashes=4, causal=True)


def local_attention(size: Size) -> nn.Module:
    """local-attention, the 256 tokens before and the token itself."""
    from local_attention import LocalAttention

    options: dict[str, Any] = {"exact_windowsize": True, "use_rotary_pos_emb": False, "autopad": True}
    return Projected(LocalAttention(256, causal=True, look_backward=1, **options))


def rwkv(size: Size) -> nn.Module:
    """RWKV-4 in transformers, whose loop over tokens runs in Python."""
    from transformers.models.rwkv.modeling_rwkv import RwkvConfig, RwkvSelfAttention

    config = RwkvConfig(hidden_size=WIDTH, attention_hidden_size=WIDTH, num_hidden_layers=12)
    return First(RwkvSelfAttention(config, layer_id=5))


class First(nn.Module):
    """First output of a module of transformers, which returns a tuple."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Return the hidden states."""
        return self.module(x)[0]


CONTENDERS = {
    "performer-pytorch": Contender("performer_pytorch", "performer", performer),
    "reformer-pytorch": Contender("reformer_pytorch", "reformer", reformer),
    "local-attention": Contender("local_attention", "window", local_attention),
    "transformers, RWKV-4": Contender("transformers", "rwkv4", rwkv),
    "linformer (package)": Contender("linformer", "linformer", linformer),
}


def beside(members: list[str]) -> dict[str, Contender]:
    """Return the contenders that compare with these mixers; print those whose package is not installed."""
    wanted = {name: contender for name, contender in CONTENDERS.items() if contender.ours in members}
    for name, contender in wanted.items():
        if not contender.there:
            print(f"left out: {name}; {contender.package} is not installed")
    return {name: contender for name, contender in wanted.items() if contender.there}
