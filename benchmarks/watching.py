"""What watching a model costs: CPU time of a forward pass that a probe looks at, beside one that nothing looks at.

The model has the shape of GPT-2 small; a text has 512 tokens. Plain is the model's own attention in plain operations,
as transformers calls `eager`; watched, a probe sees the scores and weights of every layer and keeps a sum of each.
"""

import statistics
import time
from collections.abc import Callable

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.saving import save
from ordinate import Decoder, Shape
from ordinate.attachment import attach
from ordinate.subject import Attended, Inputs, Subject, Watch

ROUNDS, TOKENS = 3, 512


class Sums(Watch):
    """Keeps the mean weight that each head gives to each of the last 32 offsets."""

    def __init__(self) -> None:
        self.sums: dict[int, torch.Tensor] = {}

    def attended(self, layer: int, seen: Attended) -> None:
        """Add a layer's."""
        offsets = [seen.weights.diagonal(-offset, 2, 3).mean((0, 2)) for offset in range(32)]
        self.sums[layer] = torch.stack(offsets)


class Nothing(Watch):
    """Looks, and keeps nothing."""

    def attended(self, layer: int, seen: Attended) -> None:
        """Look."""


def seconds(run: Callable[[], object]) -> float:
    """CPU time of one call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def compared(subject: Subject, plain: Callable[[], object]) -> dict[str, float]:
    """Each way of reading over the plain one, the median of several rounds."""
    inputs = Inputs(torch.randint(1000, (1, TOKENS)))
    ways = {
        "plain": plain,
        "read": lambda: subject.read(inputs),
        "watched": lambda: subject.read(inputs, Nothing()),
        "watched, sums of 32 offsets": lambda: subject.read(inputs, Sums()),
    }
    rounds = [{name: seconds(run) for name, run in ways.items()} for _ in range(ROUNDS + 1)][1:]
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
