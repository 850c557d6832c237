"""Recurrences as custom operators against the functions that they call, forward and backward."""

import os
import subprocess
import sys

import pytest
import torch

from ordinate.mixers.gru import Gru
from ordinate.mixers.lstm import Lstm
from ordinate.mixers.rnn import Rnn
from ordinate.ops.chunks import linear_attention
from ordinate.ops.decay import decaying_linear_attention, read_after_update
from ordinate.ops.delta_rule import delta_rule, gated_delta_rule
from ordinate.ops.diagonal import read_diagonal
from ordinate.ops.low_rank import read_low_rank
from ordinate.ops.path_attention import _path_in_chunks
from ordinate.ops.scalar_decay import scalar_decay_attention
from ordinate.ops.wkv import empty_sums, wkv
from ordinate.testing import assert_as_close

TOKENS = 70


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def rows(count):
    """Queries, keys and the like of each token, of 2 sequences, 3 heads and 4 channels."""
    return [draw(2, 3, TOKENS, 4) / 2 for _ in range(count)]


def rates(*shape):
    return torch.rand(*shape, dtype=torch.float64)


def state():
    return draw(2, 3, 4, 5)


def values():
    return draw(2, 3, TOKENS, 5)


def weights(gates):
    return [draw(gates * 4, size) for size in (4, 4)] + [draw(gates * 4) for _ in range(2)]


def modes(*shape):
    return draw(*shape, dtype=torch.complex128) / 4


SIGNALS = (3, 2, TOKENS)
CASES = {
    "linear_attention": (linear_attention, lambda: [*rows(2), values(), state()]),
    "linear_attention with peaks": (
        linear_attention,
        lambda: [*rows(2), values(), state(), draw(2, 3, TOKENS + 1).cummax(-1).values],
    ),
    "decaying_linear_attention": (
        decaying_linear_attention,
        lambda: [*rows(2), values(), -rates(2, 3, TOKENS, 4), draw(3, 4), state()],
    ),
    "read_after_update": (read_after_update, lambda: [*rows(2), values(), -rates(2, 3, TOKENS, 4), state()]),
    "scalar_decay_attention": (
        scalar_decay_attention,
        lambda: [*rows(2), values(), -rates(2, 3, TOKENS), state()],
    ),
    "delta_rule": (delta_rule, lambda: [*rows(2), values(), -rates(2, 3, TOKENS, 4), *rows(2), state()]),
    "gated_delta_rule": (gated_delta_rule, lambda: [*rows(2), values(), rates(2, 3, TOKENS), None, state()]),
    "wkv": (
        wkv,
        lambda: [draw(2, TOKENS, 4), draw(2, TOKENS, 4), -rates(4), draw(4), empty_sums(draw(2, 0, 4))],
    ),
    "read_diagonal": (
        read_diagonal,
        lambda: [draw(*SIGNALS), draw(3, 2, 8), torch.polar(rates(3, 4), draw(3, 4)), modes(3, 4), draw(3)],
    ),
    "read_low_rank": (
        read_low_rank,
        lambda: [
            draw(*SIGNALS),
            draw(3, 2, 8),
            torch.complex(-1 - rates(1, 4), draw(1, 4)),
            *(modes(1, 4) for _ in range(2)),
            modes(3, 4),
            draw(3),
            rates(3, 1) / 10,
        ],
    ),
    "path_in_chunks": (
        _path_in_chunks,
        lambda: [
            *rows(4),
            rates(2, 3, TOKENS),
            *(draw(2, 3, 5, 4) for _ in range(2)),
            torch.ones(2, 5 + TOKENS, dtype=torch.bool),
        ],
    ),
    "lstm": (Lstm(width=4).recurrence(), lambda: [draw(2, TOKENS, 4), draw(2, 2, 4), *weights(4), None]),
    "gru": (Gru(width=4).recurrence(), lambda: [draw(2, TOKENS, 4), draw(2, 1, 4), *weights(3), None]),
    "rnn_tanh": (Rnn(width=4).recurrence(), lambda: [draw(2, TOKENS, 4), draw(2, 1, 4), *weights(1), None]),
    "rnn_relu": (
        Rnn(width=4, identity=True).recurrence(),
        lambda: [draw(2, TOKENS, 4), draw(2, 1, 4), *(x / 4 for x in weights(1)), None],
    ),
}


def leaves(make):
    torch.manual_seed(0)
    return [x.requires_grad_(x.dtype != torch.bool) if x is not None else None for x in make()]


def results(function, make, which=slice(None)):
    """Results, and gradients of a function of some of them."""
    given = leaves(make)
    made = function(*given)
    total = sum((x * torch.cos(x)).sum() for x in made[which])
    learned = [x for x in given if x is not None and x.requires_grad]
    slopes = torch.autograd.grad(total, learned, allow_unused=True, materialize_grads=True)
    return [*made, *(torch.view_as_real(x) if x.is_complex() else x for x in slopes)]


@pytest.mark.parametrize("which", [slice(None), slice(0, 1), slice(1, 2)], ids=["all", "first", "second"])
@pytest.mark.parametrize("name", CASES)
def test_the_operator_has_results_and_gradients_of_its_function(name, which):
    function, make = CASES[name]
    operator = getattr(torch.ops.ordinate, name.partition(" ")[0])
    both = (results(one, make, which) for one in (operator, function))
    for place, (one, other) in enumerate(zip(*both, strict=True)):
        assert_as_close(one, other, other, what=f"result {place}")


@pytest.mark.parametrize("name", CASES)
def test_the_operator_passes_opcheck(name):
    operator = getattr(torch.ops.ordinate, name.partition(" ")[0]).default
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, tuple(leaves(CASES[name][1])), test_utils=checks)


PROGRAM = """
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from ordinate.core.devices import as_if_on
from ordinate.ops.custom_operator import custom_operator


@custom_operator("x", "start")
def sums(x: Tensor, start: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    total, made = start, []
    for token in x.unbind(1):
        total = total + (token if weight is None else token * weight)
        made.append(total)
    return (torch.stack(made, 1), total * 2) if made else (x, start)


class Sums(torch.nn.Module):
    def forward(self, x, start, weight=None):
        return sums(x, start, weight) if weight is not None else sums(x, start)


def slopes(made, pick, learned):
    return torch.autograd.grad([made[place].square().sum() for place in pick], learned, retain_graph=True)


for weighted in (False, True):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(Sums(), fullgraph=True, backend=counter)
    for tokens in (7, 4, 11):
        given = [torch.randn(2, tokens, 3), torch.randn(2, 3), *[torch.randn(3)] * weighted]
        # the initial state has no gradient
        learned = [x.requires_grad_() for x in given[::2]]
        found = [run(*given) for run in (sums, compiled)]
        torch.testing.assert_close(*found)
        for pick in ([0], [1], [0, 1]):
            torch.testing.assert_close(*(slopes(made, pick, learned) for made in found))
    assert counter.frame_count == 2, counter.frame_count


def called(given):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    torch.testing.assert_close(torch.compile(Sums(), fullgraph=True, backend=counter)(*given), sums(*given))
    return any("ordinate" in str(node.target) for graph in counter.graphs for node in graph.graph.nodes)


given = torch.randn(2, 3, 3), torch.randn(2, 3)
assert called(given)
# without tokens the function may return its arguments
assert not called((given[0][:, :0], given[1]))
with as_if_on("cuda"):
    assert not called(given)
program = torch.export.export(Sums(), given)
assert not any("ordinate" in str(node.target) for node in program.graph.nodes)
"""


@pytest.mark.extended
def test_a_compiled_function_has_one_graph_for_all_lengths_forward_and_backward():
    # the type checks of tests cannot be compiled
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-3000:]
