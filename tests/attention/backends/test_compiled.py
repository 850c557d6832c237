import os
import subprocess
import sys

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention.backends import compiled
from ordinate.schemes import T5, Alibi, Fire
from ordinate.testing.backend import random_qkv

PROGRAM = """
import torch
from ordinate import Geometry, attend
from ordinate.attention import ScoreOptions
from ordinate.schemes import T5, NoPosition
from ordinate.attention.backends import compiled

compiled.MIN_PAIRS = 0
torch.manual_seed(0)
biased = T5(heads=4)
torch.nn.init.normal_(biased.table)
real = torch.arange(40) < torch.tensor([[40], [21]])
plain, sinks = ScoreOptions(), torch.randn(4, requires_grad=True)
for scheme, where, formula in (
    (NoPosition(), Geometry.causal(40, window=3), plain),
    (biased, Geometry.causal(40), plain),
    (biased, Geometry.causal(3, cached=40), plain),
    (biased, Geometry.padded(real), plain),
    (biased, Geometry.padded(real), ScoreOptions(softcap=2.0, sinks=sinks)),
):
    torch._dynamo.reset()
    q = torch.randn(2, 4, where.shape[0], 8, requires_grad=True)
    k, v = (torch.randn(2, 2, where.shape[1], 8, requires_grad=True) for _ in range(2))
    learned = [q, k, v, *scheme.parameters(), *([] if formula is plain else [sinks])]

    def run(q, k, v):
        # twice in one graph
        at = scheme.at(where)
        return attend(q, k, v, at, score_options=formula) + attend(q * 2, k, v, at, scale=0.3, score_options=formula)

    whole = torch.compile(run, fullgraph=True, backend=BACKEND)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found = [[out, *torch.autograd.grad(out.square().sum(), learned)] for out in (run(q, k, v), whole(q, k, v))]
        for one, two in zip(*found):
            torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)
    with torch.autocast("cpu"):
        assert whole(q, k, v).dtype == torch.bfloat16
    poisoned = k.detach().clone()
    poisoned[0, 0, 5, 0] = float("nan")
    assert torch.equal(run(q, poisoned, v).isnan(), whole(q, poisoned, v).isnan())
"""


@pytest.mark.extended
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_compiled_graph_agrees_with_the_backends(backend):
    # in a subprocess without the run-time type checks of the other tests, as users run it
    program = PROGRAM.replace("BACKEND", repr(backend))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "where",
    [Geometry.causal(9), Geometry.causal(4, cached=5), Geometry.full(9, window=3), Geometry.cross(3, 9)],
)
def test_a_bias_is_given_by_its_offset_table(where):
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    tabled = compiled._TableBias(scheme.at(where).offset_table).at(where)
    assert torch.equal(tabled.bias, scheme.bias(where))
    assert torch.equal(tabled.offset_table, scheme.at(where).offset_table)
    rows, keys = slice(1, 3), slice(0, 2)
    assert torch.equal(tabled.block(rows, keys).bias, scheme.bias(where)[:, :, rows, keys])


def test_the_custom_operator_passes_opcheck(monkeypatch):
    monkeypatch.setenv("ORDINATE_NATIVE", "off")
    q, k, v = random_qkv(Geometry.causal(6), dtype=torch.float32)
    table = torch.randn(4, 11, requires_grad=True)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    for given in ((table, [], [1, 0, 0, 0], [0.5, 0.0]), (None, [torch.randn(4)], [1, 0, 0, 1], [0.5, 2.0])):
        torch.library.opcheck(compiled._attention, (q, k, v, *given), test_utils=checks)


def test_unsupported_calls_are_rejected_with_a_reason(monkeypatch):
    where = Geometry.causal(300)
    q, k, v = random_qkv(where, dtype=torch.float32)
    assert (
        explain(q, k, v, Alibi(heads=4).at(where)).unsupported["compiled"] == "the call is not inside torch.compile"
    )
    with pytest.raises(ValueError, match=r"the call is not inside torch\.compile"):
        attend(q, k, v, Alibi(heads=4).at(where), backend="compiled")
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert explain(q, k, v, Alibi(heads=4).at(where)).backend == "compiled"
    small = [x[:, :, :9] for x in (q, k, v)]
    said = explain(*small, Alibi(heads=4).at(Geometry.causal(9))).unsupported
    assert said["compiled"] == "there are fewer than 65536 query-key pairs"
    said = explain(q, k, v, Alibi(heads=4).at(where), dropout=0.5).unsupported
    assert said["compiled"] == "dropout is not supported"
    assert (
        "more than the offset"
        in explain(q, k, v, Fire(heads=4).at(Geometry.from_positions(where.q_pos))).unsupported["compiled"]
    )


def test_no_tensor_of_queries_times_keys_is_held(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    q = torch.zeros(1, 4, 4000, 8)
    assert explain(q, q, q, Alibi(heads=4).at(Geometry.causal(4000))).workspace_bytes < 4000 * 4000
