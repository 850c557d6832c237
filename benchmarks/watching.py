"""Overhead of instrumentation: CPU time of a forward pass observed by a probe, as a ratio to one without.

The model has the shape of GPT-2 small, and reads 512 tokens. `plain` is the model with attention in plain operations
(`eager` in transformers); `watched` hooks read the scores and weights of every layer and keep a sum of each.
"""

import statistics
from collections.abc import Callable

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.harness.saving import save
from benchmarks.harness.timing import cpu_seconds
from ordinate import Decoder, Shape
from ordinate.probing._adapter import AttentionRecord, Hooks, Inputs, ModelAdapter
from ordinate.probing._attach import attach

ROUNDS, TOKENS = 3, 512


class Sums(Hooks):
    """Records the mean attention weight of each head at each of the offsets 0 to 31."""

    def __init__(self) -> None:
        self.sums: dict[int, torch.Tensor] = {}

    def attended(self, layer: int, seen: AttentionRecord) -> None:
        """Record a layer."""
        offsets = [seen.pattern.diagonal(-offset, 2, 3).mean((0, 2)) for offset in range(32)]
        self.sums[layer] = torch.stack(offsets)


class Nothing(Hooks):
    """A hook that records nothing."""

    def attended(self, layer: int, seen: AttentionRecord) -> None:
        """Do nothing."""


def compared(subject: ModelAdapter, plain: Callable[[], object]) -> dict[str, float]:
    """Ratio of each way of reading to the plain one, the median over rounds."""
    inputs = Inputs(torch.randint(1000, (1, TOKENS)))
    ways = {
        "plain": plain,
        "read": lambda: subject.forward(inputs),
        "watched": lambda: subject.forward(inputs, Nothing()),
        "watched, sums of 32 offsets": lambda: subject.forward(inputs, Sums()),
    }
    rounds = [{name: cpu_seconds(run) for name, run in ways.items()} for _ in range(ROUNDS + 1)][1:]
    return {name: statistics.median(each[name] / each["plain"] for each in rounds) for name in ways}


def main(keep: bool) -> None:
    """Measure, and print a table."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config()).eval()
    model.set_attn_implementation("eager")
    ids = torch.randint(1000, (1, TOKENS))
    shape = Shape(vocabulary=50257, width=768, layers=12, heads=12, scheme="learned", norm="layer")
    own = Decoder(shape).eval()
    with torch.no_grad():
        found = {
            "gpt2 of transformers": compared(attach(model, name="gpt2"), lambda: model(ids)),
            "own model": compared(attach(own, name="own"), lambda: own(ids)),
        }
    for name, ratios in found.items():
        print(f"\n{name}: {TOKENS} tokens, 1 thread, CPU time over the plain one")
        for way, ratio in ratios.items():
            print(f"{way:30}{ratio:8.3f}")
    if keep:
        print(save("watching", found))
