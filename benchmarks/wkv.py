"""RWKV-4's WKV operator without C++, compared with the loop over tokens in transformers: CPU time, one thread."""

import os
import statistics
from collections.abc import Callable
from unittest import mock

import torch
from transformers.models.rwkv.modeling_rwkv import rwkv_linear_attention_cpu

from benchmarks.harness.memory import keep_freed
from benchmarks.harness.saving import save
from benchmarks.harness.timing import cpu_seconds
from ordinate.ops.native.build import ENV_VARIABLE
from ordinate.ops.wkv import empty_sums, wkv
from ordinate.testing.assert_close import assert_max_close

WIDTH, ROUNDS, GOAL = 512, 31, 5.0
# batch size and tokens; the loop stores every step for the backward pass, so only short sequences are trained on
FORWARD, TRAINING = ((1, 1024), (8, 1024), (1, 4096), (8, 4096)), ((1, 1024), (8, 1024))


def ways(texts: int, tokens: int) -> tuple[list[torch.Tensor], dict[str, Callable[[], torch.Tensor]]]:
    """Return the inputs, and both implementations on them."""
    k, v = torch.randn(2, texts, tokens, WIDTH)
    decay, bonus = torch.randn(2, WIDTH)
    inputs, start = [x.requires_grad_() for x in (k, v, decay, bonus)], empty_sums(k)
    return inputs, {
        "ordinate": lambda: wkv(k, v, -torch.exp(decay), bonus, start)[0],
        "transformers": lambda: rwkv_linear_attention_cpu(decay, bonus, k, v)[0],
    }


def compared(texts: int, tokens: int, *, training: bool) -> dict[str, float]:
    """Milliseconds of both, measured in turns, and the speed-up of ours."""
    inputs, both = ways(texts, tokens)

    def run(read: Callable[[], torch.Tensor]) -> object:
        return torch.autograd.grad(read().sum(), inputs) if training else read()

    with torch.set_grad_enabled(training):
        assert_max_close(both["ordinate"](), both["transformers"]().double(), 2e-5, "the mean")
        count = 2 if training else ROUNDS
        rounds = [
            {name: cpu_seconds(lambda read=read: run(read)) for name, read in both.items()} for _ in range(count)
        ]
    found = {name: 1e3 * statistics.median(each[name] for each in rounds) for name in both}
    times = statistics.median(each["transformers"] / each["ordinate"] for each in rounds)
    return {**found, "times": times, "goal": GOAL}


def main(keep: bool) -> None:
    """Measure, and print a table."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    keep_freed()
    found = {}
    print(f"{'':34}{'ordinate':>10}{'transformers':>14}{'times':>8}   goal")
    with mock.patch.dict(os.environ, {ENV_VARIABLE: "off"}):
        for what, sizes in (("forward", FORWARD), ("training", TRAINING)):
            for texts, tokens in sizes:
                row = compared(texts, tokens, training=what == "training")
                title = f"{what}, {texts} x {tokens} tokens"
                found[title] = row
                print(f"{title:34}{row['ordinate']:10.1f}{row['transformers']:14.1f}{row['times']:8.2f}   {GOAL:g}")
    if keep:
        print(save("wkv", found))
