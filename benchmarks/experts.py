"""Mixture of experts: our module beside Mixtral's of transformers, with each of its implementations, on one thread.

Both have the same weights, and the same outputs, which is checked first. Timed in turns, as a share of transformers'
loop over experts: the forward pass and the training step (forward and backward), at the numbers of tokens of a
decoding step, of short texts and of a batch.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

from benchmarks.harness.printing import show_times
from benchmarks.harness.saving import save
from benchmarks.harness.timing import in_turns, stepped
from benchmarks.harness.workload import Step
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.experts import Experts

WIDTH, HIDDEN, COUNT, CHOSEN = 256, 512, 32, 4
TOKENS, QUICK_TOKENS = (1, 16, 256, 2048), (1, 64)
BASE, ROUNDS = "transformers, eager", 9
IMPLEMENTATIONS = ("eager", "grouped_mm", "batched_mm")
# copies a matrix for each row
BATCHED_MOST = 16


def ours() -> Experts:
    """Our experts, with random weights."""
    torch.manual_seed(0)
    return Experts("swiglu", WIDTH, HIDDEN, ExpertOptions(COUNT, CHOSEN))


def theirs(experts: Experts, implementation: str) -> nn.Module:
    """Mixtral's module of transformers with the weights of ours."""
    config = MixtralConfig(
        hidden_size=WIDTH, intermediate_size=HIDDEN, num_local_experts=COUNT, num_experts_per_tok=CHOSEN
    )
    config._experts_implementation = implementation
    made: Any = MixtralSparseMoeBlock(config)
    made.gate.weight.data.copy_(experts.router.weight.data)
    made.experts.gate_up_proj.data.copy_(experts.widen.weight.data)
    made.experts.down_proj.data.copy_(experts.narrow.weight.data)
    return made


def contenders(tokens: int) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that are timed at so many tokens, by name."""
    experts = ours()
    yield "ordinate", experts
    for name in IMPLEMENTATIONS:
        if name != "batched_mm" or tokens <= BATCHED_MOST:
            yield f"transformers, {name}", theirs(experts, name)


def step_of(module: nn.Module, x: Tensor, learn: bool) -> Step:
    """A forward pass of a module, or a training step."""
    leaves = [x.clone().requires_grad_(), *module.parameters()] if learn else [x]
    return stepped((lambda: module(leaves[0]), leaves))


def main(keep: bool, quick: bool = False) -> None:
    """Check, time and print all; with `keep`, save."""
    torch.set_num_threads(1)
    found = {}
    for learn in (False, True):
        rows = {}
        for tokens in QUICK_TOKENS if quick else TOKENS:
            x, modules = torch.randn(1, tokens, WIDTH), dict(contenders(tokens))
            with torch.no_grad():
                for name, module in modules.items():
                    torch.testing.assert_close(module(x), modules["ordinate"](x), rtol=1e-4, atol=1e-4, msg=name)
            steps = {name: step_of(module, x, learn) for name, module in modules.items()}
            rows[str(tokens)] = in_turns(steps, rounds=3 if quick else ROUNDS, base=BASE)
        title = "training step" if learn else "forward pass"
        show_times(f"{title}, {COUNT} experts, {CHOSEN} of a token", rows, ())
        found[title] = rows
    if keep:
        print(save("experts", found))
