"""Training step of our decoder with each scheme, as a ratio to a minimal PyTorch model of the same size.

The minimal model has no positions. Each scheme is also compared with itself by the plain formula of attention, as it
is written in PyTorch. The minimal model uses PyTorch's 16-bit attention; ours computes it in float32 on CPUs,
which is why it can be faster.
"""

import os
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from benchmarks.harness.device import Device
from benchmarks.harness.saving import save, save_on
from ordinate import Decoder, Shape
from ordinate.attention._attend import BACKEND_VARIABLE
from ordinate.core import catalog
from ordinate.schemes import Scheme

# steps in bfloat16 take seven times as long where the processor does not multiply it
STEPS = {"float32": 16, "bfloat16": 4}
# schemes of a rehearsal, and those that are timed on a GPU
QUICK = ("none", "t5")
ON_GPU = ("none", "rope", "alibi", "t5", "kerple", "learned", "shaw", "fire")
PLAIN = "reference"
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Size(NamedTuple):
    """Size of the models and of a batch.

    Args:
        vocabulary: number of token ids.
        width: channels of the residual stream.
        layers: layers.
        heads: attention heads.
        batch: sequences of a batch.
        tokens: tokens of a sequence.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    batch: int
    tokens: int


SMALL = Size(256, 96, 3, 4, 32, 128)
# that of GPT-2's smallest model, with sequences of 2048 tokens: enough work to fill a GPU
LARGE = Size(32768, 768, 12, 12, 8, 2048)


class BareBlock(nn.Module):
    """A minimal pre-norm Transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Self-attention and feed-forward, each with a residual connection."""
        b, n, width = x.shape
        q, k, v = (
            part.view(b, n, self.heads, width // self.heads).transpose(1, 2)
            for part in self.project(self.first(x)).split(width, -1)
        )
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, width))
        return x + self.narrow(gelu(self.widen(self.second(x))))


class Bare(nn.Module):
    """A minimal decoder without position information."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleList(BareBlock(size.width, size.heads) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the next token at each position."""
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(self.norm(x), self.tokens.weight)


def step(model: nn.Module, optimiser: torch.optim.Optimizer, ids: Tensor, type: torch.dtype) -> None:
    """Run forward pass (by autocast, unless `type` is float32), backward pass and update of the parameters."""
    with torch.autocast(ids.device.type, type, enabled=type != torch.float32):
        logits = model(ids[:, :-1])
    loss = cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def measure(
    size: Size, type: torch.dtype, steps: int, device: Device, schemes: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Median seconds of a step of each model, and ratios measured in turns.

    "ratio" is that to the minimal model, "to plain" that to the same scheme by the plain formula, on CPUs.
    """
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {"bare": Bare(size).to(device.name)}
    shape = {"vocabulary": size.vocabulary, "width": size.width, "layers": size.layers, "heads": size.heads}
    for scheme in schemes:
        if 1 not in catalog.load("ordinate.schemes", Scheme, scheme).axes:
            continue
        models[scheme] = Decoder(Shape(**shape, max_length=size.tokens, scheme=scheme)).to(device.name)
    optimisers = {name: torch.optim.AdamW(model.parameters()) for name, model in models.items()}
    ids = torch.randint(0, size.vocabulary, (size.batch, size.tokens + 1)).to(device.name)
    # a model of our own and its backend, "" for the one that `attend` chooses
    ways = [(name, way) for name in models for way in ("", *(() if name == "bare" or device.is_gpu else (PLAIN,)))]
    seconds: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    for turn in range(steps + 2):
        for name, backend in ways:
            os.environ[BACKEND_VARIABLE] = backend
            spent = device.seconds(lambda name=name: step(models[name], optimisers[name], ids, type))
            if turn >= 2:
                seconds[name, backend].append(spent)
    del os.environ[BACKEND_VARIABLE]
    return {
        name: {
            "seconds": statistics.median(seconds[name, ""]),
            "ratio": _ratio(seconds[name, ""], seconds["bare", ""]),
            **({"to plain": _ratio(seconds[name, ""], seconds[name, PLAIN])} if (name, PLAIN) in seconds else {}),
        }
        for name in models
    }


def _ratio(one: Sequence[float], other: Sequence[float]) -> float:
    # within a round, so that other load on the machine affects both
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def main(keep: bool, quick: bool = False, device: str | None = None) -> None:
    """Measure, and print a table."""
    torch.set_num_threads(1)
    where = Device(device or "cpu")
    size, named = (LARGE, ON_GPU) if where.is_gpu else (SMALL, catalog.names("ordinate.schemes"))
    schemes = QUICK if quick else named
    # on a GPU nobody trains in float32
    types = {"bfloat16": torch.bfloat16} if where.is_gpu else TYPES
    results = {name: measure(size, type, 2 if quick else STEPS[name], where, schemes) for name, type in types.items()}
    what = "1 thread" if device is None else where.title
    for name, rows in results.items():
        print(
            f"\n{name}: batch {size.batch} x {size.tokens} tokens, width {size.width}, {size.layers} layers, {what}"
        )
        print(f"{'model':24}{'ms':>8}{'ratio':>8}{'to plain':>10}")
        for model, row in rows.items():
            plain = f"{row['to plain']:10.3f}" if "to plain" in row else ""
            print(f"{model:24}{row['seconds'] * 1e3:8.1f}{row['ratio']:8.3f}{plain}")
    if keep and device is None:
        weaker = torch.backends.cpu.get_cpu_capability() != "AVX512"
        print(save("decoder-avx2" if weaker else "decoder", results))
    elif keep:
        print(save_on(where, "decoder", results))
